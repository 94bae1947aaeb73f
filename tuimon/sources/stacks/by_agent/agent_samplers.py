"""The processes that are sampled by their own agent, as py-spy may not read them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tuimon.sources.control.errors import ControlError
from tuimon.sources.notices import Problem
from tuimon.sources.stacks.by_agent.in_process import InProcessSampler
from tuimon.sources.stacks.pyspy.recorder import Ended
from tuimon.sources.stacks.windows.schedule import ProcessKey

#: An agent that could not be given an order is tried again after this long.
_RETRY_S = 15.0


class AgentSamplers:
    """One sampler for each process whose agent takes orders; bounded by the processes that are sampled."""

    def __init__(self, limit_hz: float) -> None:
        self._limit_hz = limit_hz
        self._samplers: dict[ProcessKey, InProcessSampler] = {}
        self._retry_s: dict[ProcessKey, float] = {}
        self.delivering: set[ProcessKey] = set()  # whose samples come in
        self.problems: dict[ProcessKey, Problem] = {}  # why a process has no samples

    def choose(self, wanted: Collection[ProcessKey], now_s: float) -> None:
        """Sample these processes and no others."""
        for key in [key for key in (*self._samplers, *self.problems) if key not in wanted]:
            self._drop(key)
        for key in wanted:
            if key not in self._samplers and now_s >= self._retry_s.get(key, 0.0):
                try:
                    self._samplers[key] = InProcessSampler(key[0], self._limit_hz, now_s)
                    self.problems.pop(key, None)
                except ControlError as error:
                    self._fail(key, error, now_s)

    def windows(self, cpu_ratio: float, now_s: float) -> Iterator[tuple[ProcessKey, Ended]]:
        """The windows that have ended; ``cpu_ratio``: of a core, for all of them."""
        each = cpu_ratio / max(len(self._samplers), 1)
        for key, sampler in list(self._samplers.items()):
            try:
                ended = sampler.poll(now_s, each)
            except ControlError as error:
                self._fail(key, error, now_s)
                continue
            if ended is not None:
                self.delivering.add(key)
                yield key, ended
            delay = sampler.delay(now_s)
            if delay is not None:
                self.problems[key] = delay
                self.delivering.discard(key)
            else:
                self.problems.pop(key, None)

    def close(self) -> None:
        """End all."""
        for key in list(self._samplers):
            self._drop(key)

    def _fail(self, key: ProcessKey, error: ControlError, now_s: float) -> None:
        self._drop(key)
        self._retry_s[key] = now_s + _RETRY_S
        self.problems[key] = Problem(error.message, error.hint)

    def _drop(self, key: ProcessKey) -> None:
        sampler = self._samplers.pop(key, None)
        if sampler is not None:
            sampler.close()
        self.delivering.discard(key)
        self._retry_s.pop(key, None)
        self.problems.pop(key, None)
