"""Writes the trace that the agent left as the file that people keep: packed, with tuimon's steps and phases in it."""

from __future__ import annotations

import gzip
import os
import re
import stat
from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from tuimon.errors import TraceError
from tuimon.sources.outputs import output_file
from tuimon.text import plain
from tuimon.trace.chunks import OPENING
from tuimon.trace.events import Stretch
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import LINE, PHASE, STEP

_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})')
HEAD_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20
#: A trace of kineto's holds nothing that takes more than this.
_FILE_BYTES = 1 << 30
#: The level, up to 9: 4 packs 52 MB in a second into 4 MB; 9 takes three times as long for a tenth less.
_LEVEL = 4
#: Rows for tuimon's own events, above all others in Perfetto.
_PROCESS, _STEPS, _PHASES, _LINES = "tuimon", "steps", "phases", "lines"
#: Steps, phases, and lines of the user's code.
Parts = tuple[list[Stretch], list[Stretch], list[Stretch]]


def write_trace(raw_path: str, path: str, taken: TakenBy, parts: Parts, unix_ns: int, *, force: bool = False) -> None:
    """Write the file; ``parts`` are in ns of the monotonic clock, ``unix_ns`` is what to add for wall time.

    ``force``: as in ``output_file``. Raises TuimonError.
    """
    with (
        output_file(path, force=force) as file,
        open(_opened(raw_path), "rb") as raw,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL, filename="", mtime=0) as packed,
    ):
        copy_rest(raw, packed, taken, parts, unix_ns)


def _opened(path: str) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    info = os.fstat(handle)
    if info.st_uid != os.geteuid() or not stat.S_ISREG(info.st_mode):
        os.close(handle)
        raise TraceError(f"{plain(path)} is not a trace of this user's")
    return handle


def copy_rest(raw: BinaryIO, out: gzip.GzipFile, taken: TakenBy, parts: Parts, unix_ns: int) -> None:
    """Copy the profiler's file with our parts behind its opening."""
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


def _events(parts: Parts, shift_ns: int) -> Iterable[dict[str, object]]:
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
                "ts": msgspec.Raw(_us(each.begin_ns + shift_ns)),
                "dur": each.length_ns / 1000,
                "args": {},
            }


def _us(value_ns: int) -> bytes:
    """Microseconds to the nanosecond, which a float of this size does not hold."""
    return b"%d.%03d" % (value_ns // 1000, value_ns % 1000)
