"""The data held of every process that may be a rank: sums of its steps, what its samples show, answers about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from tuimon.records import BETWEEN, Process, Steps, Threads
from tuimon.session.ranks.stats import RankStats
from tuimon.session.ranks.waits import NO_SAMPLES, PhaseSamples, RankTimes
from tuimon.session.stacks.process import ProcessStacks
from tuimon.session.stacks.samples import Samples
from tuimon.session.steps.totals import RatesOfRanks

#: How many ranks' samples are sorted at a time: those of a rank take about 2 ms, and a thousand ranks wait their turn.
_SAMPLED_AT_ONCE = 16
#: Activities in which a thread sleeps, but for other ranks. Files (``io``) may keep it busy: saving is mostly work.
_WAITS = ("data", "idle", "lock", "sleep", "sync")
_NOTHING = RankStats()


class RankSamples(Struct, frozen=True, gc=False):
    """The evidence of the samples of a rank, as of the record at ``t``."""

    t: float
    phases: PhaseSamples
    between: Mapping[str, float]  # how the time that no marker divides does divide


class RankTable:
    """Folds the records of ranks."""

    def __init__(self) -> None:
        self._stats: defaultdict[int, RankStats] = defaultdict(RankStats)
        self._samples: dict[int, RankSamples] = {}

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
        self._samples.pop(pid, None)

    def stats(self, pid: int) -> RankStats:
        """The steps of a process; empty before the first."""
        return self._stats.get(pid, _NOTHING)

    def sort_newest(self, sampled: Mapping[int, ProcessStacks], pids: Sequence[int]) -> None:
        """Sort the samples that have come since, of those ranks that have waited longest for it."""
        due = []
        for pid in pids:
            own = sampled.get(pid)
            if own is not None and own.latest is not None and pid in self._stats:
                known_s = self._samples[pid].t if pid in self._samples else 0.0
                if known_s < own.latest.t:
                    due.append((known_s, pid, own))
        for _, pid, own in sorted(due, key=lambda row: row[:2])[:_SAMPLED_AT_ONCE]:
            self._samples[pid] = sorted_samples(own.over(), own.latest.t if own.latest is not None else 0.0)

    def times(self, pid: int, process: Process | None) -> RankTimes | None:
        """A rank over the last 30 s; None before a step."""
        stats, samples = self.stats(pid), self._samples.get(pid)
        parts = stats.part_ms()
        if parts is None:
            return None
        between_ms = parts.pop(BETWEEN, 0.0)
        for name, share in ((samples.between if samples is not None else None) or {"forward": 1.0}).items():
            if name != "eval":  # it belongs to no step
                parts[name] = parts.get(name, 0.0) + share * between_ms
        return RankTimes(
            parts,
            stats.main.mean,
            samples.phases if samples is not None else NO_SAMPLES,
            on_gpu=process is not None and bool(process.gpu_uuids),
            gc_ms=stats.gc_ns / stats.steps / 1e6,
        )


def sorted_samples(samples: Samples, t: float = 0.0) -> RankSamples:
    """The training thread's samples by phase, and by whether they are in collectives or wait for something else."""
    found = PhaseSamples(Counter(), Counter(), Counter())
    for row in samples.rows:
        found.total[row.phase] += row.count
        activity = row.node.activity
        if activity == "ranks":
            found.collective[row.phase] += row.count
        elif activity in _WAITS:
            found.waiting[row.phase] += row.count
    return RankSamples(t, found, samples.split.shares if samples.split is not None else {})


class Held(Struct):
    """New whenever a process comes, changes or ends, or begins to train."""

    groups: dict[int, list[Process]] = field(default_factory=dict)  # the ranks of the training of a process
    trainings: list[list[Process]] | None = None
    last: int | None = None  # the process in focus once all have ended
    pids: dict[int, list[int]] | None = None  # by node, in the order in which the processes came
    rates: dict[int, RatesOfRanks] = field(default_factory=dict)  # by the first rank of a training
