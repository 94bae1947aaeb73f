"""Takes a trace of a training through its agent, and writes the file that people keep, with steps and phases in it."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import stat
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Annotated, BinaryIO

import msgspec

from tuimon.agent.ring.control_words import TRACE_HELD_BIT, TRACE_STEPS_LIMIT, Command
from tuimon.agent.ring.files import LINES, TRACE, remove_file, side_file
from tuimon.agent.ring.layout import BACKWARD_END, BOUNDARIES, GAP_END, Marker
from tuimon.agent.ring.reader import RingReader
from tuimon.errors import TraceError
from tuimon.proc.processes import start_unix_s
from tuimon.proc.ring_facts import RawFrame, decoded, read_side_file, ring_facts
from tuimon.proc.target_files import TargetFiles
from tuimon.sources.control_channel import POLL_S, give_order
from tuimon.sources.loop.machine import LoopMachine
from tuimon.sources.outputs import output_file
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.stacks.loop_reports import path_to_backward, program_of
from tuimon.sources.trace_records import leave_record
from tuimon.text import at, plain
from tuimon.trace.events import TakenBy, TracedStretch
from tuimon.trace.reader import LINE, OPENING, PHASE, STEP, read_trace
from tuimon.trace.summary import Summary, record_of, summarize

#: Most steps of one trace.
STEPS_LIMIT = TRACE_STEPS_LIMIT
#: Longest time (ms) for which a training may be held up in all, to stop the profiler and to write.
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


class TraceOrder:
    """An order for a trace, given when it is made; ``poll`` it twice a second until ``is_over``, then ``write``."""

    def __init__(self, pid: int, steps: int, held_ms: int = HELD_MS) -> None:
        """Order the trace. Raises ControlError if the agent cannot take it."""
        self.request = give_order(pid, Command.TRACE, steps | held_ms << TRACE_HELD_BIT)
        self._ring = self.request.channel
        self._markers: deque[Marker] = deque(maxlen=_MARKERS)
        self._since_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        """True if there is nothing more to wait for."""
        return self.request.is_over

    @property
    def taken(self) -> int | None:
        """Steps that were traced so far; None until the training has taken the order."""
        return self.request.answer.value if self.request.answer is not None else None

    @property
    def waited_s(self) -> float:
        """How long ago it was ordered."""
        return time.monotonic() - self._since_s

    def poll(self) -> None:
        """Keep the order alive, read the markers."""
        self.request.poll()
        self._markers.extend(self._ring.read())

    def close(self) -> None:
        """Take the order back if it is not over, and close the ring."""
        self.request.close()

    def write(self, path: str, known: TakenBy, *, force: bool = False) -> Summary:
        """Write the file, and leave a record of it for the log of the run; returns its summary. Raises TuimonError.

        ``known``: of how it was taken; ``force``: as in ``output_file``.
        """
        raw_path, lines_path = (side_file(self._ring.path, kind) for kind in (TRACE, LINES))
        try:
            answer = decoded(self._ring.text(self.request.result().text), TraceAnswer)
            if answer is None:
                raise TraceError("the agent's answer cannot be understood")
            self._markers.extend(self._ring.read())
            steps, phases = loop_parts(self._markers, answer.begin, answer.end)
            lines = read_lines(lines_path, self.request.number, code_of(self._ring)) if answer.lines else []
            taken = msgspec.structs.replace(
                known,
                steps=len(steps) or answer.steps,
                wanted=answer.wanted,
                torch=answer.torch,
                taken_unix_s=(answer.begin + answer.unix) / 1e9,
                begin_s=answer.begin / 1e9,
                end_s=answer.end / 1e9,
                held_limit_ms=float(answer.limit),
                stop_ms=round(answer.held + answer.trial, 1),
            )
            write_trace(raw_path, path, taken, (steps, phases, lines), answer.unix, force=force)
        finally:
            remove_file(raw_path)
            remove_file(lines_path)
        summary = summarize(read_trace(os.path.abspath(path)))
        with contextlib.suppress(OSError, ValueError):  # without room it is not in the log
            leave_record(self._ring.path, record_of(summary))
        return summary


#: Boundaries of both clocks are compared with this tolerance: the agent reads the clock once more for itself (ns).
_NEAR_NS = 200_000


def loop_parts(
    markers: Sequence[Marker], begin_ns: int, end_ns: int
) -> tuple[list[TracedStretch], list[TracedStretch]]:
    """Steps and phases that lie between two moments of the monotonic clock."""
    within = [marker for marker in markers if marker.kind == BACKWARD_END and begin_ns <= marker.time_ns <= end_ns]
    threads = Counter(marker.tid for marker in within)
    if not threads:
        return [], []
    thread = threads.most_common(1)[0][0]
    machine = LoopMachine()
    ends: list[int] = []
    phases: list[TracedStretch] = []
    for marker in markers:
        if marker.kind == GAP_END:
            machine = LoopMachine()
            ends.clear()
        elif marker.tid == thread and marker.kind in BOUNDARIES:
            stretch = machine.feed(marker.time_ns, marker.kind, marker.flag, marker.value)
            ends += [step.end_ns for step in machine.steps.take_ended()]
            if begin_ns - _NEAR_NS <= stretch.begin_ns and stretch.end_ns <= end_ns + _NEAR_NS:
                phases.append(TracedStretch(stretch.label, stretch.begin_ns, stretch.end_ns))
    steps = [
        TracedStretch("", before, after)
        for before, after in pairwise(sorted(set(ends)))
        if begin_ns - _NEAR_NS <= before and after <= end_ns + _NEAR_NS
    ]
    named = [step._replace(name=f"step {number}") for number, step in enumerate(steps, 1)]
    return named, _joined(phases)


def _joined(phases: Sequence[TracedStretch]) -> list[TracedStretch]:
    """Neighbouring phases of one name joined into one."""
    found: list[TracedStretch] = []
    for phase in phases:
        if phase.end_ns <= phase.begin_ns:
            continue
        if found and found[-1].name == phase.name and found[-1].end_ns == phase.begin_ns:
            found[-1] = found[-1]._replace(end_ns=phase.end_ns)
        else:
            found.append(phase)
    return found


_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})')
HEAD_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20
#: A kineto trace holds nothing that takes more than this.
_FILE_BYTES = 1 << 30
#: Rows for tuimon's own events, above all others in Perfetto.
_PROCESS, _STEPS, _PHASES, _LINES = "tuimon", "steps", "phases", "lines"
#: Steps, phases, and lines of the user's code.
TracedParts = tuple[list[TracedStretch], list[TracedStretch], list[TracedStretch]]
#: The agent's thread writes its file when torch lets go of the GIL: right after the trace (s).
STACKS_TIMEOUT_S = 2.0
#: A sample stands for the time around it, up to halfway to its neighbours, but for at most this many spacings.
_MAX_SPACINGS = 1.5


class _StackFrame(msgspec.Struct):
    name: str
    file: str
    line: int


class _StackFile(msgspec.Struct):
    order: int
    frames: list[_StackFrame]
    stacks: list[list[int]]
    samples: list[tuple[int, int]]


def code_of(ring: RingReader) -> ProcessCode:
    """The code of a training; an installed package that is the program is the user's, as for stack samples."""
    files, loop = TargetFiles(ring.pid, start_unix_s(ring.start_ticks)), ring_facts(ring.meta()).loop
    program = program_of(path_to_backward(loop), ProcessCode(files))
    return ProcessCode(files, programs=() if program is None else (program,))


def read_lines(path: str, order: int, code: ProcessCode) -> list[TracedStretch]:
    """The lines of a trace, as stretches in ns of the monotonic clock; empty without a file."""
    until_s = time.monotonic() + STACKS_TIMEOUT_S
    try:
        while True:
            file = decoded(read_side_file(path), _StackFile)
            if file is not None and file.order == order:
                frames = [RawFrame(each.file, each.line, each.name) for each in file.frames]
                stacks = ([frames[number] for number in stack if 0 <= number < len(frames)] for stack in file.stacks)
                own = map(code.innermost, stacks)
                lines = [at(code.frame(frame))[:120] if frame is not None else "" for frame in own]
                return stretches_of(file.samples, lines)
            if time.monotonic() > until_s:
                return []
            time.sleep(POLL_S)
    finally:
        remove_file(path)


def stretches_of(samples: Sequence[tuple[int, int]], lines: Sequence[str]) -> list[TracedStretch]:
    """Neighbouring samples of one line as one stretch; ``samples``: time and stack, ``lines``: of each stack, or ""."""
    known = [(time_ns, lines[stack]) for time_ns, stack in samples if 0 <= stack < len(lines)]
    known = [each for each, before in zip(known, [(0, ""), *known], strict=False) if each[0] > before[0]]
    if len(known) < 2:
        return []
    most_ns = int(_MAX_SPACINGS * median(after[0] - before[0] for before, after in pairwise(known)))
    found: list[TracedStretch] = []
    for i, (time_ns, line) in enumerate(known):
        before_ns = (time_ns - known[i - 1][0]) // 2 if i else most_ns
        after_ns = (known[i + 1][0] - time_ns) // 2 if i + 1 < len(known) else most_ns
        begin_ns, end_ns = time_ns - min(before_ns, most_ns), time_ns + min(after_ns, most_ns)
        if found and found[-1].name == line and begin_ns - found[-1].end_ns <= 1:
            found[-1] = found[-1]._replace(end_ns=end_ns)
        elif line:
            found.append(TracedStretch(line, max(begin_ns, found[-1].end_ns) if found else begin_ns, end_ns))
    return found


def write_trace(
    raw_path: str, path: str, taken: TakenBy, parts: TracedParts, unix_ns: int, *, force: bool = False
) -> None:
    """Write the file; ``parts`` are in ns of the monotonic clock, ``unix_ns`` is what to add for wall time.

    ``force``: as in ``output_file``. Raises TuimonError.
    """
    with (
        output_file(path, force=force) as file,
        open(_opened(raw_path), "rb") as raw,
        # of 9: packs 52 MB in a second into 4 MB
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=4, filename="", mtime=0) as packed,
    ):
        copy_rest(raw, packed, taken, parts, unix_ns)


def _opened(path: str) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    info = os.fstat(handle)
    if info.st_uid != os.geteuid() or not stat.S_ISREG(info.st_mode):
        os.close(handle)
        raise TraceError(f"{plain(path)} is not this user's trace")
    return handle


def copy_rest(raw: BinaryIO, out: gzip.GzipFile, taken: TakenBy, parts: TracedParts, unix_ns: int) -> None:
    """Copy the profiler's file, with our parts inserted at the beginning of its events."""
    head = raw.read(HEAD_BYTES)
    opening = OPENING.search(head)
    if opening is None:
        raise TraceError("the agent's trace holds no events", "the disk it was written to may be full")
    shift_ns = unix_ns - _base_ns(raw, head[: opening.start()])
    out.write(head[: opening.start()] + b'"tuimon": ' + msgspec.json.encode(taken) + b",\n    ")
    out.write(head[opening.start() : opening.end()] + b"\n")
    for event in _events(parts, shift_ns):
        out.write(b"  " + msgspec.json.encode(event) + b",\n")
    chunk = head[opening.end() :]
    left = _FILE_BYTES
    while chunk and left > 0:
        out.write(chunk)
        left -= len(chunk)
        chunk = raw.read(_CHUNK_BYTES)


def _base_ns(raw: BinaryIO, before_events: bytes) -> int:
    """The origin of the file's times: behind the events up to torch 2.4 at least, before them since; else 0."""
    found = _BASE.findall(before_events)
    if not found:
        here = raw.tell()
        raw.seek(max(0, raw.seek(0, os.SEEK_END) - _TAIL_BYTES))
        found = _BASE.findall(raw.read())
        raw.seek(here)
    return int(found[-1]) if found else 0


def _events(parts: TracedParts, shift_ns: int) -> Iterable[dict[str, object]]:
    yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "tid": 0, "args": {"name": "tuimon"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": _PROCESS, "tid": 0, "args": {"sort_index": -1}}
    for category, row, stretches in zip((STEP, PHASE, LINE), (_STEPS, _PHASES, _LINES), parts, strict=True):
        for each in stretches:
            yield {
                "ph": "X",
                "cat": category,
                "name": each.name,
                "pid": _PROCESS,
                "tid": row,
                # microseconds to the nanosecond, which a float of this size does not hold
                "ts": msgspec.Raw(b"%d.%03d" % divmod(each.begin_ns + shift_ns, 1000)),
                "dur": each.length_ns / 1000,
                "args": {},
            }
