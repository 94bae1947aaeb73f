"""Work that a training script does beside its model: functions of plain code, each scaled by one number."""

from random import Random
from typing import NamedTuple

#: Marks the lines of which one must be named; the name of the piece follows.
CAUSE = "# <- "


class Work(NamedTuple):
    """A function body: takes a tensor ``x`` and ``amount``, gives ``x`` back.

    ``unit_us``: about what one unit of the amount takes. It only draws sensible amounts: the truth is measured.
    """

    lines: tuple[str, ...]
    unit_us: float
    setup: tuple[str, ...] = ()  # at the top of the module


WORKS = {
    "pixels": Work(
        ("total = 0.0", "for i in range(amount * 10):", "    total += (i % 7) * 0.5", "return x + 0.0 * total"), 0.6
    ),
    "words": Work(
        (
            'line = ""',
            "for _ in range(amount):",
            '    line = " ".join(sorted(TEXT.split()))',
            "return x + 0.0 * len(line)",
        ),
        2.6,
        ('TEXT = "the quick brown fox jumps over the lazy dog and runs away from the hounds " * 2',),
    ),
    "records": Work(
        ("row = {}", "for _ in range(amount):", "    row = json.loads(json.dumps(ROW))", "return x + 0.0 * len(row)"),
        8.0,
        ("import json", 'ROW = {"id": 7, "tags": ["a", "b", "c"], "box": [1.5, 2.5, 3.5, 4.5], "name": "sample"}'),
    ),
    "quantiles": Work(
        ("cut = 0.0", "for _ in range(amount):", "    cut = np.quantile(NOISE, 0.9)", "return x + 0.0 * float(cut)"),
        70.0,
        ("import numpy as np", "NOISE = np.random.default_rng(0).normal(size=500)"),
    ),
    "spectrum": Work(
        (
            "power = torch.zeros(())",
            "for _ in range(amount):",
            "    power = torch.fft.rfft(WAVE).abs().sum()",
            "return x + 0.0 * power.item()",
        ),
        25.0,
        ("WAVE = torch.randn(2000)",),
    ),
    "unpack": Work(
        ('raw = b""', "for _ in range(amount):", "    raw = zlib.decompress(PACKED)", "return x + 0.0 * len(raw)"),
        30.0,
        ("import zlib", "PACKED = zlib.compress(bytes(range(256)) * 40)"),
    ),
    "pattern": Work(
        ("found = []", "for _ in range(amount):", "    found = PATTERN.findall(LOG)", "return x + 0.0 * len(found)"),
        20.0,
        ("import re", 'PATTERN = re.compile(r"(\\w+)=(\\d+)")', 'LOG = "loss=12 step=400 rate=3 " * 12'),
    ),
    "remote": Work(("if amount:", "    time.sleep(amount * 1e-4)", "return x"), 160.0, ("import time",)),
}

#: What a model computes by hand in its forward pass.
MODEL_WORKS = {
    **{name: WORKS[name] for name in ("pixels", "words", "records", "quantiles", "unpack", "pattern")},
    "rows": Work(
        (
            "total = 0.0",
            "for i in range(amount):",
            "    total = total + x[i % len(x)].mean()",
            "return x + 0.0 * total",
        ),
        9.0,
    ),
}

#: What a loop does after some of its steps; ``model`` and ``amount`` are at hand.
SIDE_WORKS = {
    "checkpoint": Work(
        (
            "for _ in range(amount):",
            "    with tempfile.TemporaryFile() as file:",
            "        torch.save(model.state_dict(), file)",
        ),
        900.0,
        ("import tempfile",),
    ),
    "gradient_norms": Work(
        (
            "for _ in range(amount):",
            "    for p in model.parameters():",
            "        norms.append(p.norm().item())",
            "norms.clear()",
        ),
        60.0,
        ("norms = []",),
    ),
    "metrics": Work(
        (
            "hits = 0",
            "for i in range(amount * 10):",
            "    hits += 1 if i % 3 == i % 5 else 0",
            "HISTORY.append(hits)",
            "del HISTORY[:-10]",
        ),
        0.7,
        ("HISTORY = []",),
    ),
    "log_file": Work(
        (
            "for i in range(amount):",
            "    print(json.dumps({'step': i, 'loss': 0.1 * i}), file=LOG_FILE, flush=True)",
        ),
        9.0,
        ("import json", "import tempfile", 'LOG_FILE = tempfile.TemporaryFile("w")'),
    ),
    "upload": Work(("if amount:", "    select.select([], [], [], amount * 1e-4)"), 160.0, ("import select",)),
}


def amount_for(work: Work, wanted_us: float) -> int:
    """About this long."""
    return max(1, round(wanted_us / work.unit_us))


def function_of(name: str, work: Work, argument: str, piece: str) -> list[str]:
    """Its source; every line of the body may be named as the cause."""
    body = [f"    {line}  {CAUSE}{piece}" for line in work.lines]
    return [f"def {name}({argument}, amount):", *body]


def a_name(random: Random, taken: set[str]) -> str:
    """A function's name that none has yet."""
    first = ("load", "clean", "fix", "warp", "parse", "apply", "make", "check", "note", "run", "do", "prepare")
    second = ("it", "one", "sample", "entry", "view", "part", "piece", "row", "extra", "thing", "stats", "values")
    while True:
        name = f"{random.choice(first)}_{random.choice(second)}"
        if name not in taken:
            taken.add(name)
            return name
