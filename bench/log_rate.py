"""How fast a log grows: bytes an hour for one training process, with workers, with many threads."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from bench.overhead import Say
from bench.table import Row, Spread

ROOT = Path(__file__).resolve().parent.parent
SLOW_LOADER = str(ROOT / "demo" / "slow_loader.py")
PROMISE_MB = 10.0
#: What is told once (frames, processes) is over by then.
SETTLE_S = 10.0

#: A training beside 200 threads of its own that do a little work each.
MANY_THREADS = """
import sys, threading, time, torch

def work(n):
    while True:
        time.sleep(0.05)
        sum(range(200 + n))

for n in range(200):
    threading.Thread(target=work, args=(n,), name=f"user-{n}", daemon=True).start()
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
optimizer = torch.optim.Adam(model.parameters())
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    loss = model(torch.randn(256, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
"""


class Grown(NamedTuple):
    """What a log gained in an hour at this rate: in all and by type of record, megabytes (10^6 bytes)."""

    mb_per_hour: float
    by_type: dict[str, float]


def measure(window_s: float, say: Say) -> list[Row]:
    """A row for each kind of training; the fattest records are said beside it."""
    seconds = str(SETTLE_S + window_s)
    cases = {
        "2 workers": [SLOW_LOADER, "--workers", "2", "--seconds", seconds],
        "8 workers": [SLOW_LOADER, "--workers", "8", "--seconds", seconds],
        "200 threads": ["-c", MANY_THREADS, seconds],
    }
    rows: list[Row] = []
    for name, command in cases.items():
        say(f"the log of one training, {name}: {float(seconds):.0f} s")
        grown = watch(command)
        if grown is not None:
            fattest = sorted(grown.by_type.items(), key=lambda entry: -entry[1])[:4]
            say("  " + ", ".join(f"{kind} {mb:.2f}" for kind, mb in fattest) + " MB an hour")
        measured = Spread.of([grown.mb_per_hour]) if grown else None
        rows.append(Row(f"log, one training, {name}", PROMISE_MB, measured, unit="MB an hour"))
    return rows


def watch(command: list[str]) -> Grown | None:
    """Run it under ``tuimon run --headless``; None when that leaves no log."""
    with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as folder:
        log = Path(folder, "run.jsonl")
        run = [sys.executable, "-m", "tuimon", "run", "--headless", "--log", str(log), "--", sys.executable, *command]
        subprocess.run(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return grown(log.read_bytes().splitlines()) if log.exists() else None


def grown(lines: list[bytes]) -> Grown | None:
    """From the lines of a log: its rate after the start; None where it covers no time."""
    sizes: Counter[str] = Counter()
    read = [(json.loads(line), len(line) + 1) for line in lines]
    begin_s = min((record["t"] for record, _ in read), default=0.0) + SETTLE_S
    end_s = max((record["t"] for record, _ in read), default=0.0)
    if end_s <= begin_s:
        return None
    for record, size in read:
        if record["t"] > begin_s:
            sizes[record["type"]] += size
    per_hour = 3600 / (end_s - begin_s) / 1e6
    return Grown(sizes.total() * per_hour, {kind: size * per_hour for kind, size in sizes.items()})
