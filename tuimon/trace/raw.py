"""The contents of a trace file, as written: one event, and the head before the events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

_Name = str | int | float | None
#: Microseconds: up to the year 2255, and far below where a float has no nanoseconds any more.
_Moment = Annotated[float, msgspec.Meta(ge=0, le=9e15)]
_Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class RawArgs(msgspec.Struct, gc=False):
    """Kineto's additions to an event; fields of other types are as good as absent."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    # of an operator's inputs, where shapes were recorded; decoded for those few that need them
    sizes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


class RawEvent(msgspec.Struct, gc=False):
    """One event. ``ph``: "X" has a beginning ``ts`` and a length ``dur`` in us; others are not read."""

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
    """How tuimon took a trace; in files of other programs there is none."""

    pid: int = 0
    rank: int | None = None
    command: str = ""
    torch: str = ""
    steps: int = 0  # taken
    wanted: int = 0
    taken_unix_s: float = 0.0
    begin_s: float = 0.0  # of the monotonic clock
    end_s: float = 0.0
    held_limit_ms: float | None = None  # what was allowed of that
    stop_ms: float | None = None  # the training was held up for so long to stop and to write
    step_ms: float | None = None  # median before the trace
    note: str = ""


class RawHead(msgspec.Struct):
    """The head before the events."""

    deviceProperties: list[DeviceProperties] = []  # kineto's spelling
    tuimon: TakenBy | None = None


_EVENTS = msgspec.json.Decoder(list[RawEvent], strict=False)
_EVENT = msgspec.json.Decoder(RawEvent, strict=False)
_PARTS = msgspec.json.Decoder(list[msgspec.Raw])


def decode_events(chunk: bytes) -> Iterator[RawEvent | None]:
    """The events of a JSON array; None for each that cannot be understood."""
    try:
        yield from _EVENTS.decode(chunk)
        return
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    for part in _PARTS.decode(chunk):
        yield _decode_event(bytes(part))


def _decode_event(part: bytes) -> RawEvent | None:
    for text in (part, part.decode("utf-8", "replace").encode("utf-8")):
        try:
            return _EVENT.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return None


def decode_head(head: bytes) -> RawHead:
    """The head before the events; empty if it cannot be understood."""
    text = head.strip().rstrip(b",") + b"}"
    for candidate in (text, text.replace(b'"deviceProperties"', b'"unreadable"')):
        try:
            return msgspec.json.decode(candidate, type=RawHead)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return RawHead()
