"""Stack samples that the agent takes inside a training if py-spy may not read it: Python frames only."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Annotated, NamedTuple

import msgspec

from tuimon.agent.ring.control_words import Command, State
from tuimon.agent.ring.files import STACKS, pack_sampling, remove_file, ring_path, side_file
from tuimon.proc.ring_facts import decoded, read_side_file
from tuimon.sources.base import RETRY_S, Problem
from tuimon.sources.control_channel import ANSWER_S, ControlError, Request, give_order
from tuimon.sources.stacks.pyspy import EndedWindow
from tuimon.sources.stacks.speedscope import WindowSamples, parse_speedscope

#: Highest rate, and what the sampling thread may use of a core: it takes the GIL from the training.
IN_PROCESS_HZ = 10
CPU_RATIO = 0.008
#: Samples of a window, and its length in s: at most what the agent allows.
_SAMPLES = 20
_WINDOW_S = (2.0, 20.0)
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
    """The rate and the window at which a process is sampled."""

    hz: int
    window_s: float


def affordable_rate(sample_s: float, cpu_ratio: float, limit_hz: float) -> Rate:
    """The rate at which samples of this CPU cost (s) use this share of a core, and a window of about 20 samples."""
    hz = max(1, int(min(cpu_ratio / max(sample_s, 1e-6), limit_hz, IN_PROCESS_HZ)))
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
    """Samples one process through its agent, from ``poll`` to ``poll``; after a failure again half a minute later."""

    def __init__(self, pid: int, limit_hz: float) -> None:
        self.problem: Problem | None = None  # why no samples come in
        self.is_delivering = False
        self._pid = pid
        self._limit_hz = limit_hz
        self._sample_s = 0.00015  # CPU of 10 threads of 30 frames, before any is measured
        self._rate = affordable_rate(self._sample_s, CPU_RATIO, limit_hz)
        self._request: Request | None = None
        self._windows = 0  # of this order, that were read
        self._since_s = 0.0  # the latest window, or the order
        self._retry_s = -math.inf

    def poll(self, now_s: float, cpu_ratio: float) -> EndedWindow | None:
        """The latest window, if a new one has ended; ``cpu_ratio``: what may be used of a core."""
        if self._request is None and now_s < self._retry_s:
            return None
        ended = None
        try:
            if self._request is None:
                self._request = give_order(self._pid, Command.SAMPLE, self._argument)
                self._windows, self._since_s = 0, now_s
            ended = self._latest(self._request, now_s, cpu_ratio)
            self.problem = self._delay(self._request, now_s)
        except ControlError as error:
            self.close()
            self._retry_s = now_s + RETRY_S
            self.problem = Problem(error.message, error.hint)
        self.is_delivering = self.problem is None and (self.is_delivering or ended is not None)
        return ended

    def close(self) -> None:
        """Have the agent end it."""
        request, self._request = self._request, None
        if request is not None:
            if not request.channel.is_running():
                remove_file(side_file(request.channel.path, STACKS))
            request.close()

    @property
    def _argument(self) -> int:
        return pack_sampling(self._rate.hz, int(self._rate.window_s * 1000))

    def _latest(self, request: Request, now_s: float, cpu_ratio: float) -> EndedWindow | None:
        answer = request.poll()
        if request.is_over:
            request.result()
        if answer is None or answer.value <= self._windows:
            return None
        self._windows, self._since_s = answer.value, now_s
        ended = self._read(request, now_s)
        if ended is not None and ended.samples is not None:
            self._sample_s = max(ended.cpu_s / max(ended.samples.instants, 1), 1e-6)
            rate = affordable_rate(self._sample_s, min(cpu_ratio, CPU_RATIO), self._limit_hz)
            if max(rate.hz, self._rate.hz) > _RATE_FACTOR * min(rate.hz, self._rate.hz):
                self._rate = rate
                self._request = request.channel.order(Command.SAMPLE, self._argument, request)
                self._windows = 0
        return ended

    def _read(self, request: Request, now_s: float) -> EndedWindow | None:
        """The window in the stack file; None when it is not of our order."""
        raw = read_side_file(side_file(request.channel.path, STACKS))
        window, samples = decoded(raw, _Window), None
        if window is not None and window.order != request.number:
            return None
        with suppress(ValueError):
            samples = parse_speedscope(raw, self._pid)
        if window is None or samples is None or not 0 < window.end_ns - window.begin_ns < _LONGEST_NS:
            return EndedWindow(self._pid, self._rate.window_s, now_s, 0.0, None, message="a damaged window")
        window_s = (window.end_ns - window.begin_ns) / 1e9
        return EndedWindow(
            self._pid, window_s, min(now_s, window.end_ns / 1e9), window.cpu_ns / 1e9, samples, window.cut
        )

    def _delay(self, request: Request, now_s: float) -> Problem | None:
        """The problem when no window has come for long; None while all goes well."""
        waited_s = now_s - self._since_s
        if request.answer is None or request.answer.state != State.WORKING:
            error = request.no_answer() if waited_s >= ANSWER_S else None
            return Problem(error.message, error.hint, passing=True) if error is not None else None
        if waited_s < 2 * self._rate.window_s + _LATE_S:
            return None
        return Problem(
            f"none come from inside process {self._pid}: a thread holds the GIL all the time, or it is stopped",
            passing=True,
        )
