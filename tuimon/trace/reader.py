"""Reads a trace file into a Trace with its steps and phases, within bounds on time and memory whatever it holds."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec
from msgspec import Struct, field

from tuimon.errors import TraceError
from tuimon.text import plain, whole_number
from tuimon.trace.events import (
    EventKind,
    Events,
    RawArgs,
    RawEvent,
    RawHead,
    Stretches,
    TakenBy,
    TracedStretch,
    decode_events,
    decode_head,
)
from tuimon.trace.products import Product, product_of

#: Most events that are kept: 25 MB. A step of a large model has ten to twenty thousand.
EVENTS_LIMIT = 400_000
NAMES_LIMIT = 50_000
_NAME_CHARACTERS = 400
TRACKS_LIMIT = 2_000
_STRETCHES_LIMIT = 20_000
#: Categories of the events that tuimon adds to a file: the steps and phases of its markers.
STEP, PHASE = "tuimon_step", "tuimon_phase"
#: Category of further such events: the lines of the user's code that the training thread was at.
LINE = "tuimon_line"
#: Kinds by kineto's categories, in the spelling of older versions as well.
_KINDS = {
    "cpu_op": EventKind.OPERATOR,
    "operator": EventKind.OPERATOR,
    "user_annotation": EventKind.ANNOTATION,
    "python_function": EventKind.PYTHON,
    "runtime": EventKind.RUNTIME,
    "cuda_runtime": EventKind.RUNTIME,
    "cuda_driver": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "memset": EventKind.MEMSET,
}
_INT32 = 2**31 - 1
_INT64 = 2**62
_GZIP = b"\x1f\x8b"
#: Bytes that are read and decoded at a time.
_CHUNK_BYTES = 1 << 20
#: Most bytes before the events: device properties, and what programs add. Kineto writes some kB.
_HEAD_BYTES = 4 << 20
#: Most bytes of an event: names of kernels take kB, collectives list thousands of sizes.
EVENT_BYTES = 4 << 20
#: Most bytes of a file, unpacked: more than 4 million events. It also stops a file that was packed a thousandfold.
TRACE_BYTES = 1 << 30
#: The text between two events. It may also be part of a name or an argument, so the last few places are tried.
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_TRIES = 12
OPENING = re.compile(rb'"traceEvents"\s*:\s*\[')


class TraceFile:
    """A trace as written by kineto, or by another program in the same format; packed by gzip or not.

    Once ``chunks`` has ended, ``ended_early`` says why the file was not read to its end, if it was not.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Read up to the first event. Raises TraceError if there is none, OSError."""
        self._name = name
        self._left = TRACE_BYTES
        packed = file.read(2) == _GZIP
        file.seek(0)
        self._file: BinaryIO = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]  # it reads
        self.ended_early: str | None = None
        self.head, self._buffer = self._read_head()

    def chunks(self) -> Iterator[bytes]:
        """JSON arrays of some thousand events each, in the file's order."""
        buffer, self._buffer = self._buffer, b""
        while True:
            more = self._read()
            buffer += more
            if not more:
                last = _whole_events(buffer, ended=True)
                if last is None or not last[2]:
                    self.ended_early = self.ended_early or "it is cut off"
                if last is not None:
                    yield last[0]
                return
            if len(buffer) < _CHUNK_BYTES:
                continue
            found = _whole_events(buffer, ended=False)
            if found is not None:
                events, buffer, is_end = found[0], buffer[found[1] :], found[2]
                yield events
                if is_end:
                    return
            elif len(buffer) > EVENT_BYTES:
                self.ended_early = "it is damaged"
                return

    def _read_head(self) -> tuple[bytes, bytes]:
        buffer = b""
        while True:
            more = self._read()
            buffer += more
            opening = OPENING.search(buffer)
            if opening is not None:
                return buffer[: opening.start()], buffer[opening.end() :]
            if buffer.lstrip()[:1] == b"[":
                return b"", buffer.lstrip()[1:]
            if not more or len(buffer) > _HEAD_BYTES:
                raise TraceError(
                    f"{plain(self._name)} is not a trace: it has no traceEvents",
                    "tuimon trace reads what torch.profiler exports (Chrome trace format, .json or .json.gz)",
                )

    def _read(self) -> bytes:
        """The next bytes; empty at the end, and if the file is damaged or too large."""
        if self._left <= 0:
            self.ended_early = f"it is larger than {TRACE_BYTES >> 30} GiB"
            return b""
        try:
            data = self._file.read(min(_CHUNK_BYTES, self._left))
        except EOFError:
            self.ended_early = "it is cut off"
            return b""
        except (zlib.error, gzip.BadGzipFile):
            self.ended_early = "it is damaged"
            return b""
        self._left -= len(data)
        return data


def _whole_events(buffer: bytes, *, ended: bool) -> tuple[bytes, int, bool] | None:
    """The complete events in the buffer as a JSON array, their length in bytes, and whether they are the last ones.

    None if no event is complete.
    """
    for between in _last_borders(buffer):
        events = b"[" + buffer[: between.start() + 1] + b"]"
        try:
            msgspec.json.decode(events, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if ended and (rest := _closed_array(buffer[between.end() - 1 :])) is not None:
            return events[:-1] + b"," + rest[1:], len(buffer), True
        return events, between.end() - 1, False
    closed = _closed_array(buffer)
    return (closed, len(buffer), True) if closed is not None else None


def _last_borders(buffer: bytes) -> list[re.Match[bytes]]:
    """The last few places that may be between two events, the last first."""
    window = 1 << 14
    while True:
        found = list(_BETWEEN.finditer(buffer, max(0, len(buffer) - window)))
        if len(found) >= _TRIES or window >= len(buffer):
            return found[: -_TRIES - 1 : -1]
        window *= 8


def _closed_array(buffer: bytes) -> bytes | None:
    """The array of events that ends in this buffer; None if it does not end there."""
    text = "[" + buffer.decode("utf-8", "replace")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return text[:end].encode("utf-8", "replace")


class Trace(Struct):
    """A trace in memory; times in ns from the event that came first in the file, negative for earlier ones."""

    path: str = ""  # of its file
    events: Events = field(default_factory=Events)
    devices: list[int | None] = field(default_factory=list)  # the GPU of each track; None for a thread
    steps: Stretches = field(default_factory=Stretches)
    phases: Stretches = field(default_factory=Stretches)  # from markers; empty in files of other programs
    products: list[Product] = field(default_factory=list)
    lines: Stretches = field(default_factory=Stretches)  # of the user's code, by samples of the training thread
    device_names: dict[int, str] = field(default_factory=dict)  # by the number of the GPU
    taken: TakenBy | None = None
    dropped: int = 0  # events over the limit
    unreadable: int = 0  # damaged events
    ended_early: str | None = None  # why the file was not read to its end


def read_trace(path: str) -> Trace:
    """The trace in a file. Raises TraceError."""
    try:
        # opening a pipe would block, and other special files have no end
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise TraceError(f"{plain(path)} is not a file")
        with open(handle, "rb") as file:
            source = TraceFile(file, path)
            builder = _Builder(path, decode_head(source.head))
            for chunk in source.chunks():
                builder.add_events(decode_events(chunk))
            return builder.trace(source.ended_early)
    except OSError as error:
        raise TraceError(f"{plain(path)} cannot be read: {error.strerror}") from error


class _Builder:
    """Collects events as they are read."""

    def __init__(self, path: str, head: RawHead) -> None:
        self._trace = Trace(path, taken=head.tuimon)
        for properties in head.deviceProperties:
            self._trace.device_names[properties.id] = plain(properties.name)
        self._names: dict[object, int] = {}
        self._tracks: dict[tuple[object, object], int] = {}
        self._stretches: dict[str, list[TracedStretch]] = {STEP: [], PHASE: [], LINE: []}
        self._profiler_steps: list[TracedStretch] = []
        self._base_us: float | None = None

    def add_events(self, events: Iterable[RawEvent | None]) -> None:
        for event in events:
            if event is None:
                self._trace.unreadable += 1
            elif event.ph == "X":
                self._add_event(event)

    def trace(self, ended_early: str | None) -> Trace:
        trace, found = self._trace, self._stretches
        trace.events.sort()
        trace.steps, trace.phases = Stretches(found[STEP] or self._profiler_steps), Stretches(found[PHASE])
        trace.lines = Stretches(found[LINE])
        trace.ended_early = ended_early
        return trace

    def _add_event(self, event: RawEvent) -> None:
        if self._base_us is None:  # differences of large floats lose nanoseconds, unlike those near 0
            self._base_us = event.ts
        begin_ns = round((event.ts - self._base_us) * 1000)
        end_ns = begin_ns + round((event.dur or 0.0) * 1000)
        if event.cat in self._stretches:
            if len(self._stretches[event.cat]) < _STRETCHES_LIMIT:
                name = plain(str(event.name)[:_NAME_CHARACTERS])
                self._stretches[event.cat].append(TracedStretch(name, begin_ns, end_ns))
            return
        kind = _KINDS.get(event.cat) or _KINDS.get(event.cat.lower())
        if kind is None and event.cat.endswith(("_runtime", "_driver")):  # hip, xpu, ...
            kind = EventKind.RUNTIME
        if kind is None:
            return
        if len(self._trace.events) >= EVENTS_LIMIT:
            self._trace.dropped += 1
            return
        args = event.args or _NO_ARGS
        device = _integer(args.device, _INT32) if kind >= EventKind.KERNEL else None
        named = self._name(event.name)
        track = self._track(event, device)
        is_step = kind == EventKind.ANNOTATION and str(event.name).startswith("ProfilerStep")
        if is_step and len(self._profiler_steps) < _STRETCHES_LIMIT:
            number = plain(str(event.name).partition("#")[2][:20])
            self._profiler_steps.append(TracedStretch(f"step {number}".strip(), begin_ns, end_ns))
        if (
            kind == EventKind.OPERATOR
            and (product := product_of(event.name, args, begin_ns, end_ns, track)) is not None
        ):
            self._trace.products.append(product)
        correlation = _integer(args.correlation, _INT64) or 0 if kind >= EventKind.RUNTIME else 0
        self._trace.events.add_event(kind, named, track, begin_ns, end_ns, correlation)

    def _name(self, name: object) -> int:
        found = self._names.get(name)
        if found is None:
            names = self._trace.events.names
            text = plain(str(name)[:_NAME_CHARACTERS]) if len(names) < NAMES_LIMIT else "…"
            if len(names) > NAMES_LIMIT:
                return NAMES_LIMIT
            found = self._names[name] = len(names)
            names.append(text)
        return found

    def _track(self, event: RawEvent, device: int | None) -> int:
        key = (event.pid, event.tid)
        found = self._tracks.get(key)
        if found is None:
            devices = self._trace.devices
            if len(devices) >= TRACKS_LIMIT:
                return len(devices) - 1
            found = self._tracks[key] = len(devices)
            devices.append(device)
        return found


_NO_ARGS = RawArgs()


def _integer(value: object, limit: int) -> int | None:
    """The value if it is a whole number of at most ``limit``; else None."""
    if isinstance(value, str):
        value = whole_number(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit else None


_FETCH = "enumerate(DataLoader)"
_OPTIMIZER = "Optimizer.step#"
_BACKWARD = ("autograd::engine::evaluate_function", "torch::autograd::")


def traced_time(trace: Trace) -> TracedStretch:
    """The time from the first step's beginning to the last one's end; without steps, the whole trace."""
    if trace.steps:
        return TracedStretch("steps", trace.steps.all[0].begin_ns, trace.steps.all[-1].end_ns)
    events = trace.events
    return TracedStretch("trace", min(events.begin_ns, default=0), max(events.end_ns, default=0))


def phases_of(trace: Trace) -> Stretches:
    """The phases of the steps; for another program's file, from annotations of fetches and optimizer steps."""
    if trace.phases:
        return trace.phases
    return Stretches(
        [phase for step in trace.steps.all or [traced_time(trace)] for phase in _phases_in(trace.events, step)]
    )


def _phases_in(events: Events, step: TracedStretch) -> list[TracedStretch]:
    fetches: list[TracedStretch] = []
    updates: list[TracedStretch] = []
    backward: list[int] = []  # beginnings and ends
    for i in events.begun_in(step):
        name = events.name_of(i)
        if events.kind[i] == EventKind.ANNOTATION and name.startswith(_FETCH):
            fetches.append(TracedStretch("data", events.begin_ns[i], events.end_ns[i]))
        elif events.kind[i] == EventKind.ANNOTATION and name.startswith(_OPTIMIZER):
            updates.append(TracedStretch("optimizer", events.begin_ns[i], events.end_ns[i]))
        elif events.kind[i] == EventKind.OPERATOR and name.startswith(_BACKWARD):
            backward += (events.begin_ns[i], events.end_ns[i])
    known = fetches + updates
    if backward:
        known.append(TracedStretch("backward", min(backward), max(backward)))
    return _with_gaps(sorted(known, key=lambda each: each.begin_ns), step)


def _with_gaps(known: list[TracedStretch], step: TracedStretch) -> list[TracedStretch]:
    """The phases of a step with its gaps filled: before backward by forward, later by other."""
    found: list[TracedStretch] = []
    at_ns = step.begin_ns
    has_backward = any(each.name == "backward" for each in known)
    for stretch in known:
        if stretch.begin_ns > at_ns:
            found.append(TracedStretch("forward" if stretch.name == "backward" else "other", at_ns, stretch.begin_ns))
        found.append(stretch)
        at_ns = max(at_ns, stretch.end_ns)
    if at_ns < step.end_ns:
        found.append(TracedStretch("other" if has_backward or known else "", at_ns, step.end_ns))
    return found
