"""A script's own stopwatch: what tuimon says is held against it."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fixed", action="store_true", help="the same training without its bottleneck")
    return parser.parse_args()


class Laps:
    """Seconds per part of the loop; the first step is warm-up: it counts as a step, and its time does not."""

    def __init__(self, seconds: float) -> None:
        self._parts: Counter[str] = Counter()
        self._steps = -1  # those that are timed
        self._last = time.perf_counter()
        self._end = self._last + seconds

    def lap(self, part: str) -> None:
        """The time since the last lap was spent in this part."""
        now = time.perf_counter()
        self._parts[part] += now - self._last
        self._last = now

    def spent(self, part: str, seconds: float) -> None:
        """Part of what the next lap would count went elsewhere."""
        self._parts[part] += seconds
        self._last += seconds

    def step(self) -> bool:
        """A step has ended; whether there is time for another."""
        self._steps += 1
        if self._steps == 0:
            self._parts.clear()
            print("training", flush=True)  # from now on one may attach to it
        return time.perf_counter() < self._end

    def tell(self) -> None:
        """The truth, as the last line of the output."""
        total = sum(seconds for part, seconds in self._parts.items() if part != "eval")
        print(
            json.dumps(
                {
                    "steps": self._steps + 1,
                    "step_ms": 1000 * total / max(1, self._steps),
                    "shares": {part: seconds / total for part, seconds in self._parts.items()},
                }
            ),
            flush=True,
        )
