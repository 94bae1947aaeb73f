"""The script's own stopwatch, copied beside it: what tuimon says is held against what it prints."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from typing import ClassVar

import torch


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--without", default="", metavar="PIECE", help="the same training without this piece of work")
    return parser.parse_args()


class Stopwatch:
    """Seconds per part of the loop and per piece of work in it; the first steps are warm-up and not counted."""

    WARM_UP = 3
    _inside: ClassVar = Counter()  # by piece of work in the model, whichever of a loop's models it is in

    def __init__(self, seconds):
        self._seconds = seconds
        self._end = None  # of the training, from the first step on
        self._parts = Counter()
        self._pieces = Counter()
        self._in_evaluation = Counter()  # by piece of work that an evaluation does
        self.steps = 0
        self._last = time.perf_counter()

    def lap(self, part, piece=None):
        """The time since the last lap was spent in this part, and in this piece of it."""
        now = time.perf_counter()
        self._parts[part] += now - self._last
        if piece is not None:
            (self._in_evaluation if part == "eval" else self._pieces)[piece] += now - self._last
        self._last = now

    @classmethod
    def note_inside(cls, piece, seconds):
        """A piece of work in the model has taken so long; that of an evaluation is no part of the steps."""
        if torch.is_grad_enabled():
            cls._inside[piece] += seconds

    def step(self):
        """A step has ended; whether there is time for another."""
        self.steps += 1
        if self.steps == self.WARM_UP:
            self._parts.clear()
            self._pieces.clear()
            self._in_evaluation.clear()
            self._inside.clear()
        if self._end is None:
            print("training", flush=True)  # from now on one may attach to it
            self._end = time.perf_counter() + self._seconds
        return time.perf_counter() < self._end or self.steps <= self.WARM_UP + 1

    def tell(self):
        """The truth, as the last line of the output."""
        total = sum(seconds for part, seconds in self._parts.items() if part != "eval")
        timed = max(1, self.steps - self.WARM_UP)
        print(
            json.dumps(
                {
                    "steps": self.steps,
                    "step_ms": 1000 * total / timed,
                    "shares": {part: seconds / total for part, seconds in self._parts.items()},
                    "pieces": {piece: seconds / total for piece, seconds in self._pieces.items()},
                    "in_model": {piece: seconds / total for piece, seconds in self._inside.items()},
                    "in_evaluation": {piece: seconds / total for piece, seconds in self._in_evaluation.items()},
                }
            ),
            flush=True,
        )
