"""How much of each phase a rank waits in collectives, and how much is its own: estimates, all of them.

Markers measure how long a phase is. The part of it spent waiting for other ranks is estimated in two ways:

- In Python, stacks show it: a sample inside ``all_reduce``, ``barrier``, ``Work.wait``.
- DistributedDataParallel waits in C++, at the end of ``backward``, where no Python frame shows it. There the main
  thread sleeps: the time in which it neither runs nor wants to, less what stacks show it waiting elsewhere.

Three ranks in step, the third 20 ms longer in forward: 5 + 40 ms of which 25 asleep, 5 + 40 of which 25 asleep, and
25 + 20 of which 5 asleep. So their own times are 20, 20 and 40 ms, and the third holds the others up by 20.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Mapping, Sequence

from msgspec import Struct

from tuimon.session.stacks.activity import Activity
from tuimon.session.threads import MainThread

#: Activities in which a thread sleeps, but for other ranks. Files (``io``) may keep it busy: saving is mostly work.
_WAITS: tuple[Activity, ...] = ("data", "idle", "lock", "sleep", "sync")
#: Samples of all ranks' mean that each rank's own are blended with: few of a rank are taken, and all run the same code.
_PRIOR_SAMPLES = 2.0
#: Samples in collectives that all ranks must have together of a phase: with fewer its share is known to half at best.
_LEAST_SAMPLES = 3


class RankTimes(Struct, frozen=True, gc=False):
    """Measurements of one rank over some steps."""

    ms: Mapping[str, float]  # of a step, by phase
    main: MainThread
    samples: Mapping[tuple[str, Activity], int]  # of the main thread, by phase and by what it was doing
    on_gpu: bool  # where the CPU does not wait for collectives, and spins where it waits for the GPU
    gc_ms: float = 0.0

    @property
    def step_ms(self) -> float:
        """All phases."""
        return sum(self.ms.values())

    def count(self, *activities: Activity, phases: Container[str] | None = None) -> int:
        """Its samples in some activities (without any: in all), in some phases (None: in all)."""
        return sum(
            n
            for (phase, activity), n in self.samples.items()
            if (not activities or activity in activities) and (phases is None or phase in phases)
        )


class RankSplit(Struct, frozen=True, gc=False):
    """A rank's step in ms by phase: its own work, and what it waits in collectives; None where that is unknown."""

    own_ms: Mapping[str, float]
    wait_ms: Mapping[str, float | None]
    excess_ms: Mapping[str, float]  # of its own, beyond the median of the other ranks; backward only where known

    @property
    def waits_ms(self) -> float | None:
        """Wait in all phases; None where it is unknown of backward."""
        known = [ms for ms in self.wait_ms.values() if ms is not None]
        return sum(known) if len(known) == len(self.wait_ms) else None

    @property
    def late_ms(self) -> float:
        """How long it holds the others up: its own time beyond theirs."""
        return sum(self.excess_ms.values())


def split_ranks(ranks: Sequence[RankTimes]) -> list[RankSplit]:
    """Each rank's time, as its own and as waiting."""
    shared = _pooled(ranks)
    parts = [_split(rank, shared) for rank in ranks]
    typical = {phase: _OfOthers([own.get(phase, 0.0) for own, _ in parts]) for phase in _phases(ranks)}
    backward = _OfOthers([own["backward"] for own, waits in parts if waits.get("backward") is not None])
    errors_ms = [_asleep_error_ms(rank) for rank in ranks]
    typical_ms = _OfOthers(errors_ms)
    return [
        RankSplit(own, waits, _excess(own, waits, typical, backward, error_ms + typical_ms.median(error_ms)))
        for (own, waits), error_ms in zip(parts, errors_ms, strict=True)
    ]


def _phases(ranks: Sequence[RankTimes]) -> list[str]:
    return list(dict.fromkeys(phase for rank in ranks for phase in rank.ms))


def _pooled(ranks: Sequence[RankTimes]) -> dict[str, float]:
    """The mean share of samples in collectives by phase, over the ranks that have samples of it.

    Only of phases in which collectives were sampled often enough.
    """
    shares: dict[str, list[float]] = {}
    seen: Counter[str] = Counter()
    for rank in ranks:
        for phase in dict.fromkeys(phase for phase, _ in rank.samples):
            collective = rank.samples.get((phase, "ranks"), 0)
            seen[phase] += collective
            shares.setdefault(phase, []).append(collective / rank.count(phases=(phase,)))
    return {phase: sum(found) / len(found) for phase, found in shares.items() if seen[phase] >= _LEAST_SAMPLES}


def _split(rank: RankTimes, shared: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float | None]]:
    waits: dict[str, float | None] = {
        phase: ms * _collective_share(rank, phase, shared) for phase, ms in rank.ms.items()
    }
    if "backward" in waits:
        asleep = _asleep_in_backward(rank, waits)
        shown = waits["backward"] or 0.0
        if asleep is not None:
            waits["backward"] = max(shown, asleep)
        elif not shown:
            waits["backward"] = None
    own = {phase: ms - (waits[phase] or 0.0) for phase, ms in rank.ms.items()}
    return own, waits


def _collective_share(rank: RankTimes, phase: str, shared: Mapping[str, float]) -> float:
    """Share of a phase (0..1) by its own samples, or by all ranks' where it has few; 0 where all have too few."""
    prior = shared.get(phase)
    if prior is None:
        return 0.0
    collective = rank.samples.get((phase, "ranks"), 0)
    return (collective + _PRIOR_SAMPLES * prior) / (rank.count(phases=(phase,)) + _PRIOR_SAMPLES)


def _asleep_in_backward(rank: RankTimes, waits: Mapping[str, float | None]) -> float | None:
    """Ms of a step in which the main thread sleeps in backward; None where that is not known, and on GPUs."""
    busy, total = rank.main.busy_ratio, rank.count()
    if rank.on_gpu or busy is None:
        return None
    asleep_ms = (1.0 - busy - rank.main.stopped_ratio) * rank.step_ms
    elsewhere_ms = sum(ms or 0.0 for phase, ms in waits.items() if phase != "backward")
    for phase in dict.fromkeys(phase for phase, _ in rank.samples if phase != "backward"):
        waiting = rank.count(*_WAITS, phases=(phase,))
        elsewhere_ms += min(waiting / total * rank.step_ms, rank.ms.get(phase, 0.0))
    return max(0.0, min(rank.ms["backward"], asleep_ms - elsewhere_ms))


def _asleep_error_ms(rank: RankTimes) -> float:
    """How far off that sleep may be: the standard error of how much the thread sleeps elsewhere, by its samples."""
    count = rank.count()
    if rank.on_gpu or rank.main.busy_ratio is None or not count:
        return 0.0
    share = (rank.count(*_WAITS) - rank.count(*_WAITS, phases=("backward",))) / count
    return math.sqrt(share * (1.0 - share) / count) * rank.step_ms


def _excess(
    own: Mapping[str, float],
    waits: Mapping[str, float | None],
    typical: Mapping[str, _OfOthers],
    backward: _OfOthers,
    error_ms: float,
) -> dict[str, float]:
    """Each phase's own time beyond the median of the other ranks'.

    It includes phases that only others have: what samples count as data in one rank may be side work in another.
    Sleep that no stack shows counts as waiting in backward: a shorter own backward is no evidence, a longer one is, but
    for ``error_ms``.
    """
    excess = {phase: own.get(phase, 0.0) - others.median(own.get(phase, 0.0)) for phase, others in typical.items()}
    if "backward" in own:
        known = waits["backward"] is not None
        excess["backward"] = max(0.0, own["backward"] - backward.median(own["backward"]) - error_ms) if known else 0.0
    return excess


class _OfOthers:
    """Values of all ranks: the median of all but one, for each of a thousand ranks."""

    def __init__(self, values: Sequence[float]) -> None:
        self._sorted = sorted(values)
        self._left = len(values) - 1
        self._low, self._high = (self._left - 1) // 2, self._left // 2

    def median(self, own: float) -> float:
        """Median of the values other than ``own``, which is one of them; without any, ``own`` itself."""
        if self._left < 1:
            return own
        values, low, high, place = self._sorted, self._low, self._high, bisect_left(self._sorted, own)
        return (values[low + (low >= place)] + values[high + (high >= place)]) / 2
