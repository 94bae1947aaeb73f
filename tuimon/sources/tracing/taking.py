"""One trace of one process: the order, how far it has come, and the file in the end."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import msgspec

from tuimon.agent.ring.control_words import TRACE_HELD_BIT, TRACE_STEPS_LIMIT, Command, State
from tuimon.agent.ring.layout import BACKWARD_END, BOUNDARIES, GAP_END, Marker
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.agent.ring.side_files import LINES, TRACE, remove_file, side_file
from tuimon.errors import TraceError
from tuimon.sources.control_channel import NoAgent, Request, open_channel
from tuimon.sources.loop.machine import LoopMachine
from tuimon.sources.tracing.trace_records import leave_record
from tuimon.sources.tracing.trace_writer import read_lines, write_trace
from tuimon.trace.events import Stretch
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import Trace
from tuimon.trace.summary import Summary, record_of

#: Most steps of one trace.
STEPS_LIMIT = TRACE_STEPS_LIMIT
#: For how long a training may be held up in all, to stop the profiler and to write (ms).
HELD_MS = 250
#: Markers kept: those of some thousand steps.
_MARKERS = 1 << 17

_Ns = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_Ms = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class TraceAnswer(msgspec.Struct):
    """The text of the agent's answer (``agent/control/trace.py``)."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=STEPS_LIMIT)]
    wanted: Annotated[int, msgspec.Meta(ge=1, le=STEPS_LIMIT)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=60_000)]
    begin: _Ns
    end: _Ns
    unix: _Ns
    held: _Ms
    trial: _Ms
    torch: str = ""
    lines: bool = False


class Taking:
    """Orders a trace when it is made; ``poll`` it at least twice a second until ``is_over``, then ``write``."""

    def __init__(self, pid: int, steps: int, held_ms: int = HELD_MS) -> None:
        """Raises ControlError where that cannot be."""
        self.pid = pid
        self.wanted = steps
        self.channel = open_channel(pid)
        self.ring_path = self.channel.path
        try:
            self._reader = RingReader(self.channel.path)
        except (OSError, RingError) as error:
            self.channel.close()
            raise NoAgent(f"the ring of process {pid} cannot be read") from error
        self._markers: deque[Marker] = deque(maxlen=_MARKERS)
        try:
            self.request: Request = self.channel.order(Command.TRACE, steps | held_ms << TRACE_HELD_BIT)
        except BaseException:
            self.close()
            raise
        self._since_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        """True if there is nothing more to wait for."""
        return self.request.is_over

    @property
    def taken(self) -> int | None:
        """Steps that were traced so far; None until the training has taken the order."""
        answer = self.request.answer
        return answer.value if answer is not None else None

    @property
    def waited_s(self) -> float:
        """How long ago it was ordered."""
        return time.monotonic() - self._since_s

    def poll(self) -> None:
        """Keep the order alive, read the markers."""
        self.request.poll()
        self._markers.extend(self._reader.read())

    def cancel(self) -> None:
        """Take the order back; nothing is left behind."""
        self.request.cancel()
        self.close()

    def write(self, path: str, taken: TakenBy, *, force: bool = False) -> TakenBy:
        """Write the file; returns how it was taken; ``taken``: what else is known. Raises TuimonError.

        ``force``: as in ``output_file``.
        """
        try:
            answer = self._answer()
            self._markers.extend(self._reader.read())
            steps, phases = loop_parts(self._markers, answer.begin, answer.end)
            lines = read_lines(self.ring_path, self.request.number) if answer.lines else []
            whole = msgspec.structs.replace(
                taken,
                pid=self.pid,
                steps=len(steps) or answer.steps,
                wanted=answer.wanted,
                torch=answer.torch,
                taken_unix_s=(answer.begin + answer.unix) / 1e9,
                begin_s=answer.begin / 1e9,
                end_s=answer.end / 1e9,
                held_limit_ms=float(answer.limit),
                stop_ms=round(answer.held + answer.trial, 1),
            )
            write_trace(self._raw_path, path, whole, (steps, phases, lines), answer.unix, force=force)
            return whole
        finally:
            remove_file(self._raw_path)
            remove_file(side_file(self.ring_path, LINES))
            self.close()

    def _answer(self) -> TraceAnswer:
        result = self.request.result()
        answer = _decoded(self.channel.text(result.text)) if result.state == State.DONE else None
        if answer is None:
            raise TraceError("the agent's answer cannot be understood")
        return answer

    @property
    def _raw_path(self) -> str:
        return side_file(self.channel.path, TRACE)

    def leave_record(self, path: str, trace: Trace, summary: Summary) -> None:
        """Leave a record of what was written to ``path``, for the log of the run."""
        if trace.taken is not None:
            with contextlib.suppress(OSError, ValueError):  # without room it is not in the log
                leave_record(self.ring_path, record_of(os.path.abspath(path), trace.taken, summary))

    def close(self) -> None:
        """Let go of the ring."""
        self._reader.close()
        self.channel.close()


def _decoded(text: str) -> TraceAnswer | None:
    try:
        return msgspec.json.decode(text, type=TraceAnswer)
    except (msgspec.MsgspecError, RecursionError):
        return None


#: Boundaries of both clocks are compared with this tolerance: the agent reads the clock once more for itself (ns).
_NEAR_NS = 200_000


def loop_parts(markers: Sequence[Marker], begin_ns: int, end_ns: int) -> tuple[list[Stretch], list[Stretch]]:
    """Steps and phases that lie between two moments of the monotonic clock."""
    within = [marker for marker in markers if marker.kind == BACKWARD_END and begin_ns <= marker.time_ns <= end_ns]
    threads = Counter(marker.tid for marker in within)
    if not threads:
        return [], []
    thread = threads.most_common(1)[0][0]
    machine = LoopMachine()
    ends: list[int] = []
    phases: list[Stretch] = []
    for marker in markers:
        if marker.kind == GAP_END:
            machine = LoopMachine()
            ends.clear()
        elif marker.tid == thread and marker.kind in BOUNDARIES:
            stretch = machine.feed(marker.time_ns, marker.kind, marker.flag, marker.value)
            ends += [step.end_ns for step in machine.steps.take_ended()]
            if begin_ns - _NEAR_NS <= stretch.begin_ns and stretch.end_ns <= end_ns + _NEAR_NS:
                phases.append(Stretch(stretch.label, stretch.begin_ns, stretch.end_ns))
    steps = [
        Stretch("", before, after)
        for before, after in pairwise(sorted(set(ends)))
        if begin_ns - _NEAR_NS <= before and after <= end_ns + _NEAR_NS
    ]
    named = [step._replace(name=f"step {number}") for number, step in enumerate(steps, 1)]
    return named, _joined(phases)


def _joined(phases: Sequence[Stretch]) -> list[Stretch]:
    """Neighbours of one name as one."""
    found: list[Stretch] = []
    for phase in phases:
        if phase.end_ns <= phase.begin_ns:
            continue
        if found and found[-1].name == phase.name and found[-1].end_ns == phase.begin_ns:
            found[-1] = found[-1]._replace(end_ns=phase.end_ns)
        else:
            found.append(phase)
    return found
