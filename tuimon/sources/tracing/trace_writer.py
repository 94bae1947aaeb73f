"""Writes the trace that the agent left as the file that people keep: packed, with tuimon's steps and phases in it."""

from __future__ import annotations

import gzip
import os
import re
import stat
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import BinaryIO

import msgspec

from tuimon.agent.ring.side_files import LINES, remove_file, side_file
from tuimon.code_origin import is_user_file
from tuimon.errors import TraceError
from tuimon.proc.ring_facts import read_side_file
from tuimon.sources.outputs import output_file
from tuimon.text import plain
from tuimon.trace.events import Stretch
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import LINE, OPENING, PHASE, STEP

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
#: The agent's thread writes its file when torch lets go of the GIL: right after the trace (s).
TIMEOUT_S = 2.0
_POLL_S = 0.02
#: A sample stands for the time around it, up to half the way to its neighbours, and for no more than so many spacings.
_MOST_SPACINGS = 1.5
_NAME_CHARACTERS = 120


class _Frame(msgspec.Struct):
    name: str
    file: str
    line: int


class _File(msgspec.Struct):
    order: int
    frames: list[_Frame]
    stacks: list[list[int]]
    samples: list[tuple[int, int]]


_decoder = msgspec.json.Decoder(_File)


def read_lines(ring_path: str, order: int) -> list[Stretch]:
    """The stretches of the trace of this order, in ns of the monotonic clock; none where there is no file."""
    path = side_file(ring_path, LINES)
    until_s = time.monotonic() + TIMEOUT_S
    try:
        while True:
            file = _decoded(read_side_file(path))
            if file is not None and file.order == order:
                return stretches_of(file.samples, [_user_line(stack, file.frames) for stack in file.stacks])
            if time.monotonic() > until_s:
                return []
            time.sleep(_POLL_S)
    finally:
        remove_file(path)


def stretches_of(samples: Sequence[tuple[int, int]], lines: Sequence[str]) -> list[Stretch]:
    """Neighbouring samples of one line as one stretch; ``samples``: time and stack, ``lines``: of each stack, or ""."""
    known = [(time_ns, lines[stack]) for time_ns, stack in samples if 0 <= stack < len(lines)]
    known = [each for each, before in zip(known, [(0, ""), *known], strict=False) if each[0] > before[0]]
    if len(known) < 2:
        return []
    most_ns = int(_MOST_SPACINGS * median(after[0] - before[0] for before, after in pairwise(known)))
    found: list[Stretch] = []
    for at, (time_ns, line) in enumerate(known):
        before_ns = (time_ns - known[at - 1][0]) // 2 if at else most_ns
        after_ns = (known[at + 1][0] - time_ns) // 2 if at + 1 < len(known) else most_ns
        begin_ns, end_ns = time_ns - min(before_ns, most_ns), time_ns + min(after_ns, most_ns)
        if found and found[-1].name == line and begin_ns - found[-1].end_ns <= 1:
            found[-1] = found[-1]._replace(end_ns=end_ns)
        elif line:
            found.append(Stretch(line, max(begin_ns, found[-1].end_ns) if found else begin_ns, end_ns))
    return found


def _user_line(stack: Sequence[int], frames: Sequence[_Frame]) -> str:
    """The innermost line of the user's code: ``main() train.py:44``; "" where there is none."""
    for number in reversed(stack):
        if 0 <= number < len(frames) and is_user_file(frames[number].file):
            frame = frames[number]
            return plain(f"{frame.name}() {os.path.basename(frame.file)}:{frame.line}")[:_NAME_CHARACTERS]
    return ""


def _decoded(raw: bytes) -> _File | None:
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


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
