"""The dumps of all ranks: requested once, and read as they come."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tuimon.proc.processes import environment
from tuimon.proc.target_files import Content, TargetFiles
from tuimon.records import RankCollective
from tuimon.sources.base import Suspect
from tuimon.sources.standstill.flight_dump import NotPlain, rank_collectives

#: Largest dump that is read, in bytes: 2,000 collectives with stacks of 30 frames are 10 MB.
_DUMP_BYTES = 32 << 20
#: A dump that was written so shortly before is of this standstill as well: file systems round times (s).
_ROUNDED_S = 2.0
_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE")


class _Recorder(NamedTuple):
    """The files to which one rank's torch writes its dump, and the pipe that triggers it."""

    rank: int
    files: TargetFiles
    paths: tuple[str, ...]  # the first that is there counts
    pipe: str | None


class Recorders:
    """The recorders of the ranks of one standstill on this machine."""

    def __init__(
        self,
        suspects: Iterable[Suspect],
        quiet_s: float,
        environ: Callable[[int], Mapping[str, str]] = environment,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``quiet_s``: for how long nothing has moved; older dumps do not count."""
        self._recorders = list(_recorders(suspects, environ))
        self._since_unix_s = wall_clock() - quiet_s - _ROUNDED_S
        self._read: dict[int, float] = {}  # rank -> when the dump that was read had been written

    def request(self) -> None:
        """Have torch write the dumps, where it listens: a byte into a pipe, which it reads once a second."""
        for recorder in self._recorders:
            if recorder.pipe is not None:
                _write_byte(recorder.pipe)

    def read_new(self) -> list[RankCollective]:
        """The content of the dumps that have come since; damaged ones, and those of other users, are skipped."""
        found: list[RankCollective] = []
        for recorder in self._recorders:
            content = self._new_content(recorder)
            if content is not None:
                try:
                    found += rank_collectives(content.data, recorder.rank)
                except NotPlain:
                    continue
        return found

    def _new_content(self, recorder: _Recorder) -> Content | None:
        rights, known_unix_s = recorder.files.rights, self._read.get(recorder.rank, self._since_unix_s)
        for path in recorder.paths:
            changed_unix_s = rights.changed_unix_s(path) if rights is not None else None
            if rights is None or changed_unix_s is None or changed_unix_s <= known_unix_s:
                continue
            content = rights.read(path, _DUMP_BYTES)
            self._read[recorder.rank] = changed_unix_s
            if content is not None and content.owner == os.geteuid():
                return content
        return None


def _recorders(suspects: Iterable[Suspect], environ: Callable[[int], Mapping[str, str]]) -> Iterator[_Recorder]:
    for each in suspects:
        if each.rank is None or each.role == "worker":
            continue
        known = environ(each.pid)
        if known:
            pipe = next((known[name] for name in _PIPES if known.get(name)), None)
            path = f"{pipe}{each.rank}.pipe" if pipe else None
            yield _Recorder(each.rank, TargetFiles(each.pid), tuple(_paths(known, each.rank)), path)


def _paths(environ: Mapping[str, str], rank: int) -> Iterator[str]:
    """The paths that c10d's DebugInfoWriter chooses: newer versions of torch, then older ones."""
    named = next((environ[name] for name in _PREFIXES if environ.get(name)), None)
    if named is not None:
        yield f"{named}{rank}"
        return
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME", "/tmp"), ".cache")
    yield os.path.join(cache, "torch", f"comm_lib_trace_rank_{rank}")
    yield f"/tmp/nccl_trace_rank_{rank}"


def _write_byte(path: str) -> None:
    """Into a pipe of our own user that somebody reads; anything else is left alone."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return
    try:
        info = os.fstat(handle)
        if stat.S_ISFIFO(info.st_mode) and info.st_uid == os.geteuid():
            os.write(handle, b"1")
    except OSError:
        return
    finally:
        os.close(handle)
