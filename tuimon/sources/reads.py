"""What trainings read from disks: the bytes, and the file system with the files that their loaders have open."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from tuimon.proc import procfs
from tuimon.proc.mounts import Mount, files_read, mount_of, mounts_of
from tuimon.records import DiskReads, Record
from tuimon.sources.base import Source
from tuimon.sources.process_table import ProcessTable

_PERIOD_S = 5.0
#: Workers of a training whose open files are inspected each time, in turn.
_INSPECTED = 2
#: Bytes between two readings from which it is worth to see where they come from: our choice.
_WORTH_BYTES = 1 << 20


class _Training(Struct):
    """One training process and its workers."""

    begun_bytes: int  # read from disks before it was followed
    most_bytes: int = 0  # since then, so far
    seen: Counter[Mount] = field(default_factory=Counter)  # how often an open file was on it
    turn: int = 0


class ReadsSource(Source):
    """A record of each training process every five seconds, once it has read from a disk."""

    name = "reads"
    period_s = _PERIOD_S

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._known: dict[tuple[int, int | None], _Training] = {}  # by pid and start

    def read(self) -> Iterable[Record]:
        """The records that are due."""
        roles = self._table.roles
        trainers = [pid for pid, role in roles.items() if role == "trainer"]
        workers: dict[int, list[int]] = {}
        for pid, role in roles.items():
            if role in ("worker", "child") and (stat := procfs.read_process_stat(pid)) is not None:
                workers.setdefault(stat.ppid, []).append(pid)
        live = {(pid, self._table.start_ticks(pid)) for pid in trainers}
        self._known = {key: training for key, training in self._known.items() if key in live}
        for key in live:
            yield from self._of(key, workers.get(key[0], []))

    def _of(self, key: tuple[int, int | None], workers: list[int]) -> Iterable[Record]:
        pid = key[0]
        # those of workers that have ended are in their parent's
        own = [io.disk_read for each in (pid, *workers) if (io := procfs.read_io(each)) is not None]
        if not own:
            return
        training = self._known.setdefault(key, _Training(sum(own)))
        read_bytes = sum(own) - training.begun_bytes
        if read_bytes - training.most_bytes >= _WORTH_BYTES:
            self._inspect(training, workers or [pid])
        training.most_bytes = max(training.most_bytes, read_bytes)  # one that ends is for a moment in neither
        if training.most_bytes:
            mount = max(training.seen, key=training.seen.__getitem__, default=None)
            yield DiskReads(
                t=round(self._clock(), 3),
                pid=pid,
                total_bytes=training.most_bytes,
                mount=mount.point if mount is not None else None,
                kind=mount.kind if mount is not None else None,
            )

    def _inspect(self, training: _Training, loading: list[int]) -> None:
        """See which file systems the files are on that some of these processes have open."""
        training.turn += _INSPECTED
        chosen = [loading[(training.turn + each) % len(loading)] for each in range(min(_INSPECTED, len(loading)))]
        for pid in chosen:
            mounts = mounts_of(pid)
            found = (mount_of(path, mounts) for path in files_read(pid))
            training.seen.update(mount for mount in found if mount is not None)
