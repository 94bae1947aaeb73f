"""The events of a trace: as written, and in columns of 40 bytes per event, a tenth of the size of objects."""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from tuimon.code_origin import is_user_file
from tuimon.records import Place

_Name = str | int | float | None
#: Microseconds: up to the year 2255, and far below the values at which a float no longer resolves nanoseconds.
_Moment = Annotated[float, msgspec.Meta(ge=0, le=9e15)]
_Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class RawArgs(msgspec.Struct, gc=False):
    """Kineto's additions to an event; fields of other types count as absent."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    # of an operator's inputs, if shapes were recorded; decoded only for the few operators that need them
    sizes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


class RawEvent(msgspec.Struct, gc=False):
    """One event. With ``ph`` "X" it has a beginning ``ts`` and a length ``dur`` in us; others are not read."""

    ph: str = ""
    cat: str = ""
    name: _Name = ""
    pid: _Name = None
    tid: _Name = None
    ts: _Moment = 0.0
    dur: _Moment | None = None
    args: RawArgs | None = None


class DeviceProperties(msgspec.Struct):
    """A GPU of the machine."""

    id: _Number = 0
    name: str = ""


class TakenBy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How tuimon took a trace; absent from files of other programs."""

    pid: int = 0
    rank: int | None = None
    command: str = ""
    torch: str = ""
    steps: int = 0  # steps taken
    wanted: int = 0
    taken_unix_s: float = 0.0
    begin_s: float = 0.0  # on the monotonic clock
    end_s: float = 0.0
    held_limit_ms: float | None = None  # the longest for which the training might be held up
    stop_ms: float | None = None  # how long stopping and writing held the training up
    step_ms: float | None = None  # median step before the trace


class RawHead(msgspec.Struct):
    """The part of a trace file before the events."""

    deviceProperties: list[DeviceProperties] = []  # kineto's spelling
    tuimon: TakenBy | None = None


_EVENTS = msgspec.json.Decoder(list[RawEvent], strict=False)
_EVENT = msgspec.json.Decoder(RawEvent, strict=False)
_PARTS = msgspec.json.Decoder(list[msgspec.Raw])


def decode_events(chunk: bytes) -> Iterator[RawEvent | None]:
    """The events of a JSON array; None for each that cannot be decoded."""
    try:
        yield from _EVENTS.decode(chunk)
        return
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    for part in map(bytes, _PARTS.decode(chunk)):
        event: RawEvent | None = None
        for text in (part, part.decode("utf-8", "replace").encode("utf-8")):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                event = event or _EVENT.decode(text)
        yield event


def decode_head(head: bytes) -> RawHead:
    """The part of a file before the events; empty if it cannot be decoded."""
    text = head.strip().rstrip(b",") + b"}"
    for candidate in (text, text.replace(b'"deviceProperties"', b'"unreadable"')):
        try:
            return msgspec.json.decode(candidate, type=RawHead)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return RawHead()


_NAME = re.compile(r"(?P<file>[^()<>]*?\.py)\((?P<line>\d{1,9})\): (?P<function>.+)")
_LIBRARIES = frozenset(("torch", "numpy", "site-packages", "tuimon", "lightning", "transformers", "accelerate"))


class EventKind(IntEnum):
    """The kind of an event; from KERNEL on, events ran on a GPU."""

    OPERATOR = 0  # of torch: aten::mm
    ANNOTATION = 1  # record_function: ProfilerStep#3, Optimizer.step#AdamW.step
    PYTHON = 2  # a Python function
    RUNTIME = 3  # a call of the CUDA or HIP runtime or driver
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6


class TracedStretch(NamedTuple):
    """A step or a phase: the time between two moments of a trace, in ns."""

    name: str
    begin_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.begin_ns


class Events:
    """Events in columns, ordered by their beginning. Each column holds one fact of the event with index ``i``.

    ``correlation``: a number that a runtime call shares with the work it put on the GPU; 0 for none.
    """

    __slots__ = ("begin_ns", "correlation", "end_ns", "kind", "name", "names", "track")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.begin_ns, self.end_ns = array("q"), array("q")
        self.kind, self.name, self.track = array("b"), array("i"), array("i")
        self.correlation = array("q")

    def __len__(self) -> int:
        return len(self.begin_ns)

    def add_event(self, kind: int, name: int, track: int, begin_ns: int, end_ns: int, correlation: int = 0) -> None:
        self.kind.append(kind)
        self.name.append(name)
        self.track.append(track)
        self.begin_ns.append(begin_ns)
        self.end_ns.append(end_ns)
        self.correlation.append(correlation)

    def name_of(self, index: int) -> str:
        return self.names[self.name[index]]

    def length_ns(self, index: int) -> int:
        return self.end_ns[index] - self.begin_ns[index]

    def begun_in(self, stretch: TracedStretch) -> range:
        """The indices of the events that began in a stretch."""
        return range(bisect_left(self.begin_ns, stretch.begin_ns), bisect_left(self.begin_ns, stretch.end_ns))

    def sort(self) -> None:
        """Sort by beginning; of events that begin together, put the longer first, as it encloses the other."""
        order = sorted(range(len(self)), key=lambda i: (self.begin_ns[i], -self.end_ns[i]))
        for column in ("begin_ns", "end_ns", "kind", "name", "track", "correlation"):
            values = getattr(self, column)
            setattr(self, column, array(values.typecode, [values[i] for i in order]))


class Stretches:
    """Steps or phases, which do not overlap: finds the one that a moment lies in."""

    def __init__(self, stretches: Sequence[TracedStretch] = ()) -> None:
        self.all: list[TracedStretch] = []
        for stretch in sorted(stretches, key=lambda each: each.begin_ns):
            if stretch.end_ns <= stretch.begin_ns:
                continue
            begin_ns = max(stretch.begin_ns, self.all[-1].end_ns) if self.all else stretch.begin_ns
            if begin_ns < stretch.end_ns:
                self.all.append(stretch._replace(begin_ns=begin_ns))
        self._begins = [stretch.begin_ns for stretch in self.all]

    def __bool__(self) -> bool:
        return bool(self.all)

    def name_at(self, moment_ns: int) -> str:
        """The name of the stretch that holds a moment; "" between stretches."""
        at = bisect_right(self._begins, moment_ns) - 1
        return self.all[at].name if at >= 0 and moment_ns < self.all[at].end_ns else ""


def python_place(name: str) -> Place | None:
    """File, first line and name of a function; None if it is not written in Python."""
    found = _NAME.fullmatch(name)
    return Place(found["file"], int(found["line"]), found["function"]) if found is not None else None


def is_python_of_user(name: str) -> bool:
    """True if a function is the user's own, from no library and not from Python."""
    place = python_place(name)
    if place is None:
        return False
    first = place.file.lstrip("/").split("/", 1)[0].removesuffix(".py")
    if not place.file.startswith("/") and (first in _LIBRARIES or first in sys.stdlib_module_names):
        return False
    return is_user_file(place.file)
