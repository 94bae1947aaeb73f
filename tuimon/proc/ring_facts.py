"""The facts that a process reports in its ring, checked field by field: it may have written anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from tuimon.agent.ring import files
from tuimon.agent.ring.files import FILE_LIMIT, reason_left_by
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.bounds import HELD
from tuimon.records import Count, Process
from tuimon.text import plain

T = TypeVar("T")
_Text = Annotated[str, Meta(min_length=1)]
Boundary = Literal["backward", "optimizer"]


class RawFrame(NamedTuple):
    """A frame as Python names it, with the bare name of its function."""

    file: str
    line: Count
    function: str

    @property
    def code(self) -> tuple[str, str]:
        """Its function, by file and name."""
        return self.file, self.function


def read_side_file(path: str) -> bytes:
    """The bytes of a file of this user; empty if it is missing, too large, or not a regular file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        info = os.fstat(handle)
        if info.st_uid != os.geteuid() or not stat.S_ISREG(info.st_mode) or info.st_size > FILE_LIMIT:
            return b""
        return os.read(handle, FILE_LIMIT)
    except OSError:
        return b""
    finally:
        os.close(handle)


def decoded(raw: bytes | str, kind: type[T]) -> T | None:
    """The value that a process has left as JSON; None if it is damaged, or not of this type."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class ReportedStack(NamedTuple):
    """A stack of the training thread at a boundary of its loop."""

    boundary: Boundary
    frames: tuple[RawFrame, ...]  # root first


def loop_stacks(fact: object) -> tuple[ReportedStack, ...]:
    """The stacks in the fact ``loop`` (``agent/process/loop_stacks.py``), without malformed ones."""
    by_boundary = ((boundary, reported_frames(fact, boundary)) for boundary in get_args(Boundary))
    return _shared(tuple(ReportedStack(boundary, frames) for boundary, frames in by_boundary if frames))


@lru_cache(4)
def _shared(stacks: tuple[ReportedStack, ...]) -> tuple[ReportedStack, ...]:
    """The stacks, or equal ones that were read lately: the ranks of a run have equal ones, then held only once."""
    return stacks


def reported_frames(fact: object, name: str) -> tuple[RawFrame, ...]:
    """The stack of this name in a fact that numbers the files of its stacks; empty if malformed."""
    if not isinstance(fact, dict):
        return ()
    files = fact.get("files")
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        return ()
    stack = fact.get(name)
    out: list[RawFrame] = []
    for frame in stack if isinstance(stack, list) and len(stack) <= HELD else ():
        match frame:
            case [int(file), int(line), str(function)] if 0 <= file < len(files) and 0 <= line < 1 << 31:
                out.append(RawFrame(files[file], line, function))
            case _:
                return ()
    return tuple(out)


class RingFacts(Struct, frozen=True, gc=False):
    """Facts that a process reports; None, or empty, if missing or of the wrong type."""

    of_process: Mapping[str, Any] = {}  # the fields of its ``Process`` record that it reports
    run: _Text | None = None  # id of the ``tuimon run`` that started it
    output: _Text | None = None  # file with the output of that run
    tracer: _Text | None = None  # package that sees each call or line of the program: cProfile, pdb, coverage
    cuda_visible_devices: str | None = None
    cuda_device_order: _Text | None = None
    error: _Text | None = None  # text of the exception that ended the program; may hold a traceback of another process
    raised_ns: Count | None = None
    raised_in: tuple[RawFrame, ...] = ()  # frames that the exception passed through
    loop: tuple[ReportedStack, ...] = ()  # where its loop calls backward and its optimizer

    @property
    def rank(self) -> int | None:
        return self.of_process.get("rank")

    @property
    def gpu_uuids(self) -> list[str]:
        """The GPUs that it uses."""
        found: list[str] = self.of_process.get("gpu_uuids", [])
        return found


#: The fields of a ``Process`` record that the monitor finds out by itself; all others are reported.
_OWN = ("t", "pid", "ppid", "start_unix_s", "command", "role", "markers", "markers_reason", "omp_num_threads", "ended")
#: The facts that are not of the expected type.
_STACKS = ("of_process", "raised_in", "loop")
_PROCESS_FIELDS = {each.name: each.type for each in msgspec.structs.fields(Process) if each.name not in _OWN}
_OTHERS = {each.name: each.type for each in msgspec.structs.fields(RingFacts) if each.name not in _STACKS}


def ring_facts(meta: Mapping[str, object]) -> RingFacts:
    """The facts in ``RingReader.meta()``."""
    raised_in, loop = reported_frames(meta.get("raised_in"), "frames"), loop_stacks(meta.get("loop"))
    return RingFacts(_known(meta, _PROCESS_FIELDS), raised_in=raised_in, loop=loop, **_known(meta, _OTHERS))


def _known(meta: Mapping[str, object], types: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of these names that are there, and of their types."""
    known: dict[str, Any] = {}
    for name, kind in types.items():
        if meta.get(name) is not None:
            with suppress(msgspec.ValidationError):
                known[name] = msgspec.convert(meta[name], kind)
    return known


def read_ring_facts(pid: int, start_ticks: int) -> RingFacts | None:
    """The facts of a live process; None if there is no ring, all unknown while the process is writing them."""
    try:
        reader = RingReader(files.ring_path(pid))
    except (OSError, RingError, ValueError):
        return None
    try:
        return ring_facts(reader.meta()) if reader.start_ticks == start_ticks else None
    finally:
        reader.close()


def ring_folders() -> list[str]:
    """The folders in which this user's rings are searched for."""
    return [os.path.abspath(folder) for folder in files.ring_directories()]


def why_no_ring(pid: int) -> str | None:
    """The reason that a process reports for having no ring; None if it reports none. About 1 us a descriptor."""
    reason = reason_left_by(pid)
    return None if reason is None else plain(reason)
