"""What every program needs: its options, a clock that ends it, and the line that tells how long its steps took."""

from __future__ import annotations

import argparse
import json
import time


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--planted", action="store_true", help="with the work that makes it slow")
    return parser.parse_args()


OPTIONS = options()
#: Whether the slow work is done.
PLANTED = OPTIONS.planted


class Clock:
    """Counts steps; the first ones are warm-up and not timed."""

    WARM_UP = 3

    def __init__(self):
        self.steps = 0
        self._begin = self._last = time.perf_counter()

    def step(self):
        """A step has ended; whether there is time for another."""
        self.steps += 1
        if self.steps == 1:
            print("training", flush=True)  # from now on one may attach to it
        self._last = time.perf_counter()
        if self.steps == self.WARM_UP:
            self._begin = self._last
        return self.steps <= self.WARM_UP or self._last - self._begin < OPTIONS.seconds

    def tell(self):
        """The truth, as the last line of the output."""
        step_ms = 1000 * (self._last - self._begin) / max(1, self.steps - self.WARM_UP)
        print(json.dumps({"steps": self.steps, "step_ms": step_ms, "shares": {}}), flush=True)
