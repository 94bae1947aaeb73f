"""What labelled programs share: their options, a stopwatch that tells the truth about them, and plain loops.

What tuimon says is held against what the stopwatch prints. Random loops have a copy of this file beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", help="that of a script of several")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fixed", action="store_true", help="the same training without its fault")
    parser.add_argument("--without", default="", metavar="PIECE", help="... without this piece of work")
    torch.set_num_threads(1)
    return parser.parse_args()


class Laps:
    """Seconds per part of the loop and per piece of work in it; the first steps count, and their time does not."""

    WARM_UP = 3
    inside: ClassVar[Counter[str]] = Counter()  # by piece of work in the model, whichever of a loop's models it is in

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end: float | None = None  # of the training, from the first step on
        self.parts: Counter[str] = Counter()
        self.ever: Counter[str] = Counter()  # the same with the first steps
        self.ended = (time.monotonic(), dict(self.ever))  # when the latest step ended, and the parts until then
        self.course: list[tuple[float, dict[str, float]]] = []  # the same of the last step before each second
        self.pieces: Counter[str] = Counter()
        self.in_evaluation: Counter[str] = Counter()  # by piece of work that an evaluation does
        self.steps = 0
        self.last = self.begin = time.perf_counter()

    def lap(self, part: str, piece: str | None = None) -> None:
        """The time since the last lap was spent in this part, and in this piece of it."""
        seconds = time.perf_counter() - self.last
        self.spent(part, seconds)
        if piece is not None:
            (self.in_evaluation if part == "eval" else self.pieces)[piece] += seconds

    def spent(self, part: str, seconds: float) -> None:
        """Part of what the next lap would count went elsewhere."""
        self.parts[part] += seconds
        self.ever[part] += seconds
        self.last += seconds

    @classmethod
    def note_inside(cls, piece: str, seconds: float) -> None:
        """A piece of work in the model has taken so long; that of an evaluation is no part of the steps."""
        if torch.is_grad_enabled():
            cls.inside[piece] += seconds

    def step(self) -> bool:
        """A step has ended; whether there is time for another."""
        self.steps += 1
        now_s = time.monotonic()
        if int(now_s) > int(self.ended[0]):
            self.course.append(self.ended)
        self.ended = (now_s, dict(self.ever))
        if self.steps == self.WARM_UP:
            for counted in (self.parts, self.pieces, self.in_evaluation, self.inside):
                counted.clear()
            self.begin = time.perf_counter()
        if self.end is None:
            print("training", flush=True)  # from now on one may attach to it
            self.end = time.perf_counter() + self.seconds
        return time.perf_counter() < self.end or self.steps <= self.WARM_UP + 1

    def report(self) -> None:
        """The truth, as the last line of the output; of a loop without laps only how long its steps take."""
        total = sum(seconds for part, seconds in self.parts.items() if part != "eval")
        counted = {
            "shares": self.parts,
            "pieces": self.pieces,
            "in_model": self.inside,
            "in_evaluation": self.in_evaluation,
        }
        shares = {name: {of: seconds / total for of, seconds in spent.items()} for name, spent in counted.items()}
        course = {"course": [*self.course, self.ended]}
        step_ms = 1000 * (total or time.perf_counter() - self.begin) / max(1, self.steps - self.WARM_UP)
        print(json.dumps({"steps": self.steps, "step_ms": step_ms, "pid": os.getpid(), **shares, **course}), flush=True)


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Its batches, epoch after epoch."""
    return chain.from_iterable(repeat(loader))


def steps(seconds: float) -> Iterator[int]:
    """The numbers of the steps of a loop until then; what they take is told when it is over."""
    watch = Laps(seconds)
    yield 0
    while watch.step():
        yield watch.steps
    watch.report()


def fit(
    args: argparse.Namespace,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Any, ...]],
    loss_of: Callable[..., torch.Tensor],
    side_work: Callable[[int], None] | None = None,
    beside: str = "other",
) -> None:
    """Train with the parts of each batch; of several ranks the first says when it is over.

    ``side_work`` is given the number of the step that has ended, and is of the part ``beside``.
    """
    has_ranks = dist.is_initialized()
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
            watch.lap(beside)
        going = torch.tensor(float(watch.step()))
        if has_ranks:
            dist.broadcast(going, 0)
            watch.lap("other")
        if not going:
            break
    if not has_ranks or dist.get_rank() == 0:
        watch.report()
    if has_ranks:
        dist.barrier()
        dist.destroy_process_group()


def small_model(wide: int = 256, layers: int = 12) -> nn.Sequential:
    """Enough operations that what their graph holds shows."""
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(wide, wide), nn.Tanh())))


def train(
    seconds: float, after: Callable[..., object] | None = None, batches: Iterator[torch.Tensor] | None = None
) -> None:
    """Nothing is wrong in here; ``after(number, loss, model)`` follows each step, and ends the training by True."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in steps(seconds):
        x = torch.randn(64, 256) if batches is None else next(batches)
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after is not None and after(number, loss, model):
            break
