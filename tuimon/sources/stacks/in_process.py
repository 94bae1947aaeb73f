"""Stack samples that the agent takes inside a training, where py-spy may not read it: Python frames only."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Annotated, NamedTuple

import msgspec

from tuimon.agent.ring.control_words import Command, State
from tuimon.agent.ring.files import STACKS, pack_sampling, remove_file, ring_path, side_file
from tuimon.proc.ring_facts import decoded, read_side_file
from tuimon.sources.base import RETRY_S, Problem
from tuimon.sources.control_channel import ANSWER_S, ControlError, give_order
from tuimon.sources.stacks.pyspy import Ended
from tuimon.sources.stacks.schedule import ProcessKey
from tuimon.sources.stacks.speedscope import WindowSamples, parse_speedscope

#: Highest rate, and what the sampling thread may use of a core: it takes the GIL from the training.
FASTEST_HZ = 10
CPU_RATIO = 0.008
#: Samples of a window, and its length in s: at most what the agent allows.
_SAMPLES = 20
_WINDOW_S = (2.0, 20.0)
#: CPU seconds of a sample before any is measured: 10 threads of 30 frames.
_PRIOR_SAMPLE_S = 0.00015
#: The rate changes when what can be afforded differs by more than this factor.
_RATE_FACTOR = 1.3
#: A window that is this late (s): the sampling thread does not get the GIL, or the process is stopped.
_LATE_S = 5.0


#: A longer window is damaged.
_LONGEST_NS = 3600 * 10**9


class _Window(msgspec.Struct):
    """Contents of the stack file apart from the stacks."""

    order: int
    window: int
    begin_ns: int
    end_ns: int
    cpu_ns: Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_NS)]
    instants: int
    cut: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 0


class Rate(NamedTuple):
    """How a process is sampled."""

    hz: int
    window_s: float


def affordable_rate(sample_s: float, cpu_ratio: float, limit_hz: float) -> Rate:
    """The rate at which samples of this CPU cost (s) use this share of a core, and a window of about 20 samples."""
    hz = max(1, int(min(cpu_ratio / max(sample_s, 1e-6), limit_hz, FASTEST_HZ)))
    return Rate(hz, min(max(_SAMPLES / hz, _WINDOW_S[0]), _WINDOW_S[1]))


def latest_samples(pid: int, since_s: float) -> WindowSamples | None:
    """The latest window that the agent of a process has sampled; None if most of it is from before ``since_s``."""
    try:
        raw = read_side_file(side_file(ring_path(pid), STACKS))
        window = decoded(raw, _Window)
        is_recent = window is not None and (window.begin_ns + window.end_ns) / 2e9 > since_s
        return parse_speedscope(raw, pid) if is_recent else None
    except (OSError, ValueError, IndexError):
        return None


class InProcessSampler:
    """Samples one process through its agent, from ``poll`` to ``poll``, until ``close``."""

    def __init__(self, pid: int, limit_hz: float, now_s: float) -> None:
        """Begin. Raises ControlError."""
        self.pid = pid
        self._limit_hz = limit_hz
        self._sample_s = _PRIOR_SAMPLE_S
        self._rate = affordable_rate(self._sample_s, CPU_RATIO, limit_hz)
        self._request = give_order(pid, Command.SAMPLE, self._argument)
        self._file = side_file(self._request.channel.path, STACKS)
        self._windows = 0  # of this order, that were read
        self._since_s = now_s  # the latest window, or the order

    def poll(self, now_s: float, cpu_ratio: float) -> Ended | None:
        """The latest window, if a new one has ended; ``cpu_ratio``: what may be used of a core. Raises ControlError."""
        answer = self._request.poll()
        if self._request.is_over:
            self._request.result()
        if answer is None or answer.value <= self._windows:
            return None
        self._windows, self._since_s = answer.value, now_s
        ended = self._read(now_s)
        if ended is not None and ended.samples is not None:
            self._sample_s = max(ended.cpu_s / max(ended.samples.instants, 1), 1e-6)
            self._adapt(min(cpu_ratio, CPU_RATIO))
        return ended

    def delay(self, now_s: float) -> Problem | None:
        """The problem when no window has come for long; None while all goes well."""
        waited_s = now_s - self._since_s
        if self._request.answer is None or self._request.answer.state != State.WORKING:
            if waited_s < ANSWER_S:
                return None
            error = self._request.no_answer()
            return Problem(error.message, error.hint, passing=True)
        if waited_s < 2 * self._rate.window_s + _LATE_S:
            return None
        return Problem(
            f"none come from inside process {self.pid}: a thread holds the GIL all the time, or it is stopped",
            passing=True,
        )

    def close(self) -> None:
        """Have the agent end it."""
        if not self._request.channel.is_running():
            remove_file(self._file)
        self._request.close()

    @property
    def _argument(self) -> int:
        return pack_sampling(self._rate.hz, int(self._rate.window_s * 1000))

    def _adapt(self, cpu_ratio: float) -> None:
        rate = affordable_rate(self._sample_s, cpu_ratio, self._limit_hz)
        if max(rate.hz, self._rate.hz) > _RATE_FACTOR * min(rate.hz, self._rate.hz):
            self._rate = rate
            self._request = self._request.channel.order(Command.SAMPLE, self._argument, self._request)
            self._windows = 0

    def _read(self, now_s: float) -> Ended | None:
        """The window in the stack file; None when it is not of our order."""
        raw = read_side_file(self._file)
        window, samples = decoded(raw, _Window), None
        if window is not None and window.order != self._request.number:
            return None
        with suppress(ValueError):
            samples = parse_speedscope(raw, self.pid)
        if window is None or samples is None or not 0 < window.end_ns - window.begin_ns < _LONGEST_NS:
            return Ended(self.pid, self._rate.window_s, now_s, 0.0, None, message="a damaged window")
        window_s = (window.end_ns - window.begin_ns) / 1e9
        return Ended(self.pid, window_s, min(now_s, window.end_ns / 1e9), window.cpu_ns / 1e9, samples, window.cut)


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
        for key in list(self._samplers):
            self._drop(key)

    def _fail(self, key: ProcessKey, error: ControlError, now_s: float) -> None:
        self._drop(key)
        self._retry_s[key] = now_s + RETRY_S
        self.problems[key] = Problem(error.message, error.hint)

    def _drop(self, key: ProcessKey) -> None:
        sampler = self._samplers.pop(key, None)
        if sampler is not None:
            sampler.close()
        self.delivering.discard(key)
        self._retry_s.pop(key, None)
        self.problems.pop(key, None)
