"""Requests dumps of torch's flight recorders, and reads them as they come: how far each rank is in each group.

torch keeps the latest collectives of each rank in a ring in memory (``TORCH_FR_BUFFER_SIZE``, formerly
``TORCH_NCCL_TRACE_BUFFER_SIZE``: 2,000 of them unless it is set) and writes them to a file, by its own thread: when a
collective has timed out, and immediately when a byte is written into the pipe that ``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``
names. The file, ``<TORCH_FR_DUMP_TEMP_FILE><rank>``, holds a pickled dict of plain values (versions 2.x; torch's own
reader: ``torch/distributed/flight_recorder``)::

    {"version": "2.10",
     "pg_config": {name: {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
     "pg_status": {id: {"last_enqueued_collective": 4, "last_completed_collective": 3, ...}},
     "entries": [{"process_group": ("0", "default_pg"), "collective_seq_id": 4, "profiling_name": "nccl:all_reduce",
                  "state": "scheduled" | "started" | "completed", "retired": False, "is_p2p": False, ...}]}

Gloo's entries stay "scheduled": ``retired`` marks those that are over.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import msgspec

from tuimon.proc.processes import environment_of
from tuimon.proc.target_files import Content, TargetFiles
from tuimon.records import RankCollective, StandingProcess

#: Largest dump that is read, in bytes: 2,000 collectives with stacks of 30 frames are 10 MB.
_DUMP_BYTES = 32 << 20
_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE")


class UnsafePickle(Exception):
    """The pickle is damaged, or would run code: it holds more than numbers, texts, lists, tuples and dicts."""


class _SafeUnpickler(pickle.Unpickler):
    """Refuses all names, so that nothing is called and no object is made (docs.python.org, Restricting Globals)."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafePickle(f"it names {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise UnsafePickle("it names an object elsewhere")


def safely_unpickled(data: bytes) -> Any:  # noqa: ANN401  (whatever was pickled)
    """The pickled value; raises UnsafePickle. The caller limits the size of ``data``, as the value grows with it."""
    try:
        return _SafeUnpickler(io.BytesIO(data)).load()
    except UnsafePickle:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise UnsafePickle(f"{type(error).__name__}: {error}") from error


#: Most process groups of a rank that are kept, the first; a training has a few, one for each kind of parallelism.
_GROUPS = 16
#: Longest name of a group and of a collective, and most ranks of a group that are kept.
_CHARS, _MEMBERS = 80, 4096
#: Versions of dumps that are read: the major number changes with the meaning of the fields (FlightRecorder.hpp).
_MAJORS = ("1.", "2.")
#: The entry of several collectives launched as one; their own entries have its number, and no state.
_COALESCED = "coalesced"


class _Entry(msgspec.Struct, frozen=True):
    """A collective of the dump; further fields are ignored."""

    profiling_name: str  # "nccl:all_reduce"
    process_group: list[str] | str | None = None  # name and description; older dumps have the name, or nothing
    pg_id: int = 0  # of the process: the same group may have another number in another rank
    collective_seq_id: int | None = None
    seq_id: int = 0  # of dumps before 2.0, which count sends with the collectives
    record_id: int = 0
    state: str = ""
    retired: bool = False
    is_p2p: bool = False

    @property
    def number(self) -> int:
        return max(0, self.seq_id if self.collective_seq_id is None else self.collective_seq_id)

    @property
    def group(self) -> tuple[str, ...]:
        if isinstance(self.process_group, list):
            return tuple(self.process_group)
        return (self.process_group or str(self.pg_id),)

    @property
    def name(self) -> str:
        return self.profiling_name.rpartition(":")[2][:_CHARS]

    @property
    def is_collective(self) -> bool:
        return not self.is_p2p and self.name.partition(" ")[0] not in ("send", "recv")

    @property
    def is_over(self) -> bool:
        """True if it has ended. Gloo only sets ``retired``; of others, retired but not completed is timed out."""
        return self.state == "completed" or (self.retired and self.profiling_name.startswith("gloo:"))


class _ProcessGroup(msgspec.Struct, frozen=True):
    name: str = ""
    desc: str = ""
    ranks: str = ""  # "[0, 1]"


class _Dump(msgspec.Struct, frozen=True):
    version: str = ""
    entries: list[_Entry] = []
    pg_config: dict[str, _ProcessGroup] = {}


def rank_collectives(data: bytes, rank: int) -> list[RankCollective]:
    """The last collective that a rank has entered and the one it waits for, by group. Raises UnsafePickle."""
    try:
        dump = msgspec.convert(safely_unpickled(data), _Dump, strict=False)
    except msgspec.ValidationError as error:
        raise UnsafePickle(str(error)) from error
    if not dump.version.startswith(_MAJORS):
        raise UnsafePickle(f"a dump of version {dump.version[:_CHARS]!r}")
    groups: dict[tuple[str, ...], list[_Entry]] = {}
    for entry in dump.entries:
        if entry.is_collective and (len(groups) < _GROUPS or entry.group in groups):
            groups.setdefault(entry.group, []).append(entry)
    rows = [_group_collective(key, entries, dump.pg_config, rank) for key, entries in groups.items()]
    return rows + list(_groups_not_begun(dump, rank, {row.group for row in rows}, _GROUPS - len(rows)))


def _group_collective(
    key: tuple[str, ...], entries: Iterable[_Entry], config: dict[str, _ProcessGroup], rank: int
) -> RankCollective:
    numbers: dict[int, list[_Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.number):
        numbers.setdefault(entry.number, []).append(entry)
    last = max(numbers)
    # coalesced collectives never end one by one: only their common entry does
    over = {
        number
        for number, launch in numbers.items()
        if all(each.is_over for each in launch) or any(each.is_over for each in launch if each.name == _COALESCED)
    }
    waits = next((number for number in numbers if number not in over), None)
    return RankCollective(
        rank=rank,
        group=_group_name(key),
        entered=last,
        name=next(
            (each.name for each in numbers[last if waits is None else waits] if each.name != _COALESCED), _COALESCED
        ),
        waits_for=waits,
        members=_members(key, config),
    )


def _groups_not_begun(dump: _Dump, rank: int, known: Set[str], most: int) -> Iterable[RankCollective]:
    """Groups in which a rank has entered nothing yet; none if older entries may have been overwritten."""
    if min((entry.record_id for entry in dump.entries), default=0) > 0:
        return
    for key, group in islice(dump.pg_config.items(), max(0, most)):
        members = _members((key,), dump.pg_config)
        name = _group_name((group.name, group.desc))
        if name not in known and group.name and rank in members:
            yield RankCollective(rank=rank, group=name, entered=0, name="", waits_for=None, members=members)


def _group_name(key: Iterable[str]) -> str:
    return ":".join(part for part in key if part and part != "undefined")[:_CHARS]


def _members(key: tuple[str, ...], config: dict[str, _ProcessGroup]) -> list[int]:
    """The ranks of a group; empty if that is unknown. Gloo names its group differently in the two places."""
    found = config.get(key[0] if key else "") or (next(iter(config.values())) if len(config) == 1 else None)
    if found is None:
        return []
    try:
        ranks: Any = json.loads(found.ranks)  # Any: JSON
    except (ValueError, RecursionError):
        return []
    if not isinstance(ranks, list) or not all(isinstance(each, int) and each >= 0 for each in ranks):
        return []
    return ranks[:_MEMBERS]


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
        suspects: Iterable[StandingProcess],
        quiet_s: float,
        environ: Callable[[int], Mapping[str, str]] = environment_of,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``quiet_s``: how long nothing has moved; dumps from before that do not count."""
        self._recorders = list(_recorders(suspects, environ))
        self._since_unix_s = wall_clock() - quiet_s - 2.0  # file systems round times
        self._read: dict[int, float] = {}  # rank -> when the dump that was read had been written

    def request(self) -> None:
        """Have torch write the dumps by a byte into its pipe, if it has one; it reads that once a second."""
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
                except UnsafePickle:
                    continue
        return found

    def _new_content(self, recorder: _Recorder) -> Content | None:
        rights, known_unix_s = recorder.files.rights, self._read.get(recorder.rank, self._since_unix_s)
        for path in recorder.paths:
            content = rights.read(path, _DUMP_BYTES, known_unix_s) if rights is not None else None
            if content is not None:
                self._read[recorder.rank] = content.changed_unix_s
                if content.owner == os.geteuid():
                    return content
        return None


def _recorders(suspects: Iterable[StandingProcess], environ: Callable[[int], Mapping[str, str]]) -> Iterator[_Recorder]:
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
    """Write a byte into a pipe of our own user that somebody reads; leave anything else alone."""
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
