"""Writes the training script of a plan: ordinary code, as its author would have written it, with a stopwatch in it."""

from __future__ import annotations

from random import Random

from tests.random_loops import loops
from tests.random_loops.data import amount_of, data_blocks
from tests.random_loops.plan import Piece, Plan
from tests.random_loops.works import MODEL_WORKS, SIDE_WORKS, WORKS, Work, a_name, function_of

_MODELS = {
    "mlp": "nn.Sequential(*[layer for _ in range({depth}) for layer in (nn.Linear({width}, {width}), nn.ReLU())])",
    "conv": "nn.Sequential(nn.Unflatten(1, (1, {width})), nn.Conv1d(1, 12, 5), nn.ReLU(),"
    " nn.Conv1d(12, 12, 5, stride={depth}), nn.ReLU(), nn.Flatten(), nn.LazyLinear({width}))",
    "transformer": "nn.Sequential(nn.Unflatten(1, (16, {width} // 16)),"
    " nn.TransformerEncoder(nn.TransformerEncoderLayer({width} // 16, 2, 64, batch_first=True), {depth},"
    " enable_nested_tensor=False), nn.Flatten())",
    "recurrent": "Recurrent({width}, {depth})",
    "waiting": "nn.Sequential(nn.Linear({width}, {width}), Waiting({depth}))",
}
_RECURRENT = [
    "class Recurrent(nn.Module):",
    "    def __init__(self, width, layers):",
    "        super().__init__()",
    "        self.cell = nn.GRU(16, 64, layers, batch_first=True)",
    "        self.head = nn.Linear(64, width)",
    "",
    "    def forward(self, x):",
    "        return self.head(self.cell(x.unflatten(1, (-1, 16)))[0][:, -1])",
]
#: A model that takes its time without a core, as one on a device of its own does.
_WAITING = [
    "class Waiting(nn.Module):",
    "    def __init__(self, depth):",
    "        super().__init__()",
    "        self.seconds = 1e-3 * depth * depth",
    "",
    "    def forward(self, x):",
    "        time.sleep(self.seconds)",
    "        return x",
]
_SLOW_IMPORT = "slow_library"


def script_of(plan: Plan) -> str:
    """The text of the script."""
    names = names_of(plan)
    model = _MODELS[plan.model].format(width=plan.width, depth=plan.depth)
    has_work_inside = any(piece.place == "model" for piece in plan.pieces)
    blocks = [
        *(function_of(names[p.name], _work(p), "model" if p.place == "step_end" else "x", p.name) for p in plan.pieces),
        *([_RECURRENT] if plan.model == "recurrent" else []),
        *([_WAITING] if plan.model == "waiting" else []),
        *data_blocks(plan, names),
        *_in_model(plan, names),
        ["def make_model():", f"    return {f'WithWork({model})' if has_work_inside else model}"],
        *_setup(plan),
        *loops.SHAPES[plan.shape](plan, names),
        ['if __name__ == "__main__":', f"    torch.set_num_threads({plan.threads})", "    main()"],
    ]
    tops = dict.fromkeys(line for piece in plan.pieces for line in _work(piece).setup)
    imports = {
        "import itertools",
        "import time",
        "import torch",
        *(line for line in tops if line.startswith("import ")),
    }
    head = [
        f'"""Random loop {plan.seed}."""',
        "",
        *sorted(imports),
        "from laps import Laps, options",
        "from torch import nn",
    ]
    head.append("from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler")
    head += ["", *(line for line in tops if line not in imports)]
    return "\n".join(head) + "\n\n\n" + "\n\n\n".join("\n".join(block) for block in blocks) + "\n"


def _work(piece: Piece) -> Work:
    """What a piece of work does."""
    if piece.place == "step_end":
        return SIDE_WORKS[piece.work]
    return (MODEL_WORKS if piece.place == "model" else WORKS)[piece.work]


def names_of(plan: Plan) -> dict[str, str]:
    """The names of the functions of its pieces of work."""
    random = Random(plan.seed)
    taken: set[str] = set()
    return {piece.name: a_name(random, taken) for piece in plan.pieces}


def slow_library(seconds: float) -> tuple[str, str]:
    """Name and text of a module that takes this long to import."""
    wait = f"end = time.perf_counter() + {seconds}\nwhile time.perf_counter() < end:\n    sum(range(1000))\n"
    return f"{_SLOW_IMPORT}.py", f"import time\n\n{wait}"


def _in_model(plan: Plan, names: dict[str, str]) -> list[list[str]]:
    """A model that works by hand before it computes; its time is part of the forward pass, and measured by itself."""
    lines = []
    for piece in plan.pieces:
        if piece.place == "model":
            lines += ["begin = time.perf_counter()", f"x = {names[piece.name]}(x, {amount_of(piece)})"]
            lines.append(f'Laps.note_inside("{piece.name}", time.perf_counter() - begin)')
    forward = ["class WithWork(nn.Module):", "    def __init__(self, inner):", "        super().__init__()"]
    forward += ["        self.inner = inner", "", "    def forward(self, x):", *(f"        {line}" for line in lines)]
    return [[*forward, "        return self.inner(x)"]] if lines else []


def _setup(plan: Plan) -> list[list[str]]:
    """What a script does before it trains."""
    s = plan.setup_s
    lines = {
        "nothing": ["pass"],
        "tokenise": [
            f"end = time.perf_counter() + {s}",
            "vocabulary = {}",
            "while time.perf_counter() < end:",
            '    for word in "it was the best of times it was the worst of times".split():',
            "        vocabulary[word] = vocabulary.get(word, 0) + 1",
        ],
        "slow_import": [f"import {_SLOW_IMPORT}  # noqa: F401"],
        "download": [f"time.sleep({s})"],
        "statistics": [
            "total = torch.zeros(())",
            f"end = time.perf_counter() + {s}",
            "for x, _ in itertools.islice(DataLoader(Rows(), batch_size=16), 100_000):",
            "    total += x.mean()",
            "    if time.perf_counter() > end:",
            "        break",
        ],
        "look_at_data": [
            "rows = Rows()",
            f"end = time.perf_counter() + {s}",
            "seen = iter(rows) if isinstance(rows, IterableDataset) else (rows[i] for i in itertools.count())",
            "for _ in seen:",
            "    if time.perf_counter() > end:",
            "        break",
        ],
    }[plan.setup]
    return [["def prepare():", *(f"    {line}" for line in lines)]]
