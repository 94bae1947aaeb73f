"""Costly drawing is spaced out, so that it takes at most a few percent of a core."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Costly work is due again after this many times its CPU time, so that it takes at most 4 % of a core.
REST_FACTOR = 25
#: CPU time from which work counts as costly.
REST_ABOVE_S = 0.02


class DutyCycle:
    """Decides when work that was costly the last time is due again."""

    def __init__(self) -> None:
        self._rest_until_s = 0.0

    def is_due(self) -> bool:
        """Whether the work may be done now."""
        return time.monotonic() >= self._rest_until_s

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the work in the ``with`` block; costly work delays when it is due next."""
        began_s = time.thread_time()
        yield
        cost_s = time.thread_time() - began_s
        if cost_s > REST_ABOVE_S:
            self._rest_until_s = max(self._rest_until_s, time.monotonic() + REST_FACTOR * cost_s)
