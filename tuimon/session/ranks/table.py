"""The data held of every process that may be a rank: sums of its steps, answers about it."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct, field

from tuimon.records import BETWEEN, Process, Steps, Threads
from tuimon.session.ranks.stats import RankStats
from tuimon.session.ranks.waits import RankTimes
from tuimon.session.stacks.samples import Samples
from tuimon.session.steps.totals import RatesOfRanks

_NOTHING = RankStats()


class RankTable:
    """Folds the records of ranks."""

    def __init__(self) -> None:
        self._stats: defaultdict[int, RankStats] = defaultdict(RankStats)

    def add_steps(self, record: Steps) -> None:
        """Fold a window of steps."""
        self._stats[record.pid].add_steps(record, len(self._stats))

    def add_threads(self, record: Threads) -> None:
        """Fold a window of threads, of a process that has steps."""
        if record.pid in self._stats:
            self._stats[record.pid].add_threads(record)

    def forget(self, pid: int) -> None:
        """Drop a process."""
        self._stats.pop(pid, None)

    def stats(self, pid: int) -> RankStats:
        """The steps of a process; empty before the first."""
        return self._stats.get(pid, _NOTHING)

    def times(self, pid: int, process: Process | None, samples: Samples) -> RankTimes | None:
        """A rank over the last 30 s; None before a step."""
        stats = self.stats(pid)
        parts = stats.part_ms()
        if parts is None:
            return None
        between_ms = parts.pop(BETWEEN, 0.0)
        for name, share in (samples.split.shares if samples.split is not None else {"forward": 1.0}).items():
            if name != "eval":  # it belongs to no step
                parts[name] = parts.get(name, 0.0) + share * between_ms
        return RankTimes(
            parts,
            stats.main.mean,
            samples.by_phase_and_activity,
            on_gpu=process is not None and bool(process.gpu_uuids),
            gc_ms=stats.gc_ns / stats.steps / 1e6,
        )


class Held(Struct):
    """New whenever a process comes, changes or ends, or begins to train."""

    groups: dict[int, list[Process]] = field(default_factory=dict)  # the ranks of the training of a process
    trainings: list[list[Process]] | None = None
    last: int | None = None  # the process in focus once all have ended
    pids: dict[int, list[int]] | None = None  # by node, in the order in which the processes came
    rates: dict[int, RatesOfRanks] = field(default_factory=dict)  # by the first rank of a training
