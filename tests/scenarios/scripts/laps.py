"""A program's own stopwatch: what tuimon says is held against what it prints. Random loops have a copy beside them.

Programs in which something else than the loop is of interest share the loop as well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Any, ClassVar

import torch


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fixed", action="store_true", help="the same training without its bottleneck")
    parser.add_argument("--without", default="", metavar="PIECE", help="... without this piece of work")
    torch.set_num_threads(1)
    return parser.parse_args()


class Laps:
    """Seconds per part of the loop and per piece of work in it; the first steps count, and their time does not."""

    WARM_UP = 3
    _inside: ClassVar[Counter[str]] = Counter()  # by piece of work in the model, whichever of a loop's models it is in

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None  # of the training, from the first step on
        self._parts: Counter[str] = Counter()
        self._pieces: Counter[str] = Counter()
        self._in_evaluation: Counter[str] = Counter()  # by piece of work that an evaluation does
        self.steps = 0
        self._last = time.perf_counter()

    def lap(self, part: str, piece: str | None = None) -> None:
        """The time since the last lap was spent in this part, and in this piece of it."""
        seconds = time.perf_counter() - self._last
        self.spent(part, seconds)
        if piece is not None:
            (self._in_evaluation if part == "eval" else self._pieces)[piece] += seconds

    def spent(self, part: str, seconds: float) -> None:
        """Part of what the next lap would count went elsewhere."""
        self._parts[part] += seconds
        self._last += seconds

    @classmethod
    def note_inside(cls, piece: str, seconds: float) -> None:
        """A piece of work in the model has taken so long; that of an evaluation is no part of the steps."""
        if torch.is_grad_enabled():
            cls._inside[piece] += seconds

    def step(self) -> bool:
        """A step has ended; whether there is time for another."""
        self.steps += 1
        if self.steps == self.WARM_UP:
            for counted in (self._parts, self._pieces, self._in_evaluation, self._inside):
                counted.clear()
        if self._end is None:
            print("training", flush=True)  # from now on one may attach to it
            self._end = time.perf_counter() + self._seconds
        return time.perf_counter() < self._end or self.steps <= self.WARM_UP + 1

    def tell(self) -> None:
        """The truth, as the last line of the output."""
        total = sum(seconds for part, seconds in self._parts.items() if part != "eval")
        counted = {
            "shares": self._parts,
            "pieces": self._pieces,
            "in_model": self._inside,
            "in_evaluation": self._in_evaluation,
        }
        shares = {name: {of: seconds / total for of, seconds in spent.items()} for name, spent in counted.items()}
        step_ms = 1000 * total / max(1, self.steps - self.WARM_UP)
        print(json.dumps({"steps": self.steps, "step_ms": step_ms, **shares}), flush=True)


def endless(loader: Iterable[Any]) -> Iterable[Any]:
    """Its batches, epoch after epoch."""
    return chain.from_iterable(repeat(loader))


def fit(
    args: argparse.Namespace,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Any, ...]],
    loss_of: Callable[..., torch.Tensor],
    side_work: Callable[[int], None] | None = None,
) -> None:
    """Train with the parts of each batch; ``side_work`` is given the number of the step that has ended."""
    watch = Laps(args.seconds)
    for batch in batches:
        watch.lap("data")
        loss = loss_of(*batch)
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        if side_work is not None:
            side_work(watch.steps + 1)
            watch.lap("other")
        if not watch.step():
            break
    watch.tell()
