"""Parts of scripts that several frameworks have in common."""

from __future__ import annotations

from tests.random_loops.loops import Names, indented, side_work
from tests.random_loops.plan import Plan

#: How many batches an evaluation has.
EVALUATED_BATCHES = 10
#: A framework's own checkpoints come after so many steps.
CHECKPOINT_EVERY = 200
_HELD_BATCH = 64


def noted(plan: Plan, names: Names, place: str, model: str = "model") -> list[str]:
    """Work at a place that the framework calls; what the framework did before it is no part of it."""
    lines = side_work(plan, names, place, model=model)
    return ["watch.catch_up()", *lines] if lines else []


def logged_every(plan: Plan) -> int | None:
    """After how many steps a logger is told; None without one that works."""
    return next((piece.every for piece in plan.pieces if piece.place == "logger"), None)


def called_by_logger(plan: Plan, names: Names) -> list[str]:
    """What it does each time that the framework calls it."""
    lines = noted(plan, names, "logger", model="None")
    return [line.strip() for line in lines if not line.startswith("if watch.steps")]


def held_out(plan: Plan) -> list[str]:
    """The data set that evaluations see."""
    return [
        "class HeldOut(Dataset):",
        "    validates = True",
        "",
        "    def __init__(self):",
        f"        self.rows = torch.randn({EVALUATED_BATCHES * _HELD_BATCH}, {plan.width})",
        "",
        "    def __len__(self):",
        "        return len(self.rows)",
        "",
        "    def __getitem__(self, index):",
        "        return self.rows[index], self.rows[index]",
    ]


def held_loader() -> str:
    """Its loader."""
    return f"DataLoader(HeldOut(), batch_size={_HELD_BATCH})"


def method(signature: str, *lines: str) -> list[str]:
    """A method of a class; nothing without lines."""
    return ["", f"    def {signature}:", *indented(list(lines), 2)] if lines else []


def a_class(head: str, *methods: list[str]) -> list[str]:
    """A class without attributes."""
    body = [line for lines in methods for line in lines]
    return [head, *(body[1:] or ["    pass"])]


def start(plan: Plan, *lines: str) -> list[str]:
    """The beginning of main()."""
    return ["def main():", *indented(["prepare()", *lines])]
