"""How the time of steps that were only counted divides into phases: an estimate, by those that were timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from tuimon.records import BETWEEN
from tuimon.sources.loop.step import Step

#: A step is a long one from this many times the median on: our choice.
_LONG = 2
#: The time of long steps beyond the usual counts half after some 30 windows.
_DECAY = 0.98


class CountedPhases:
    """Learns from timed steps, and divides the time of counted ones.

    They are divided like steps of the usual length, but for what they took beyond that, such as for a checkpoint. How
    much that is in all is known, though not one of them need have been timed. A long one is divided like timed steps of
    about its length; where there are none, it has paused outside all pairs of markers.

    >>> phases = CountedPhases()
    >>> phases.learn([Step(total_ns=10, phases={"forward": 4, "backward": 6})] * 3)
    >>> phases.divide(5, 90, [50])  # four of the usual length, and one that took 40 longer
    {'forward': 20, 'backward': 30, 'other': 40}
    """

    def __init__(self) -> None:
        self._usual_ns: dict[str, float] = {}  # of a step of the usual length
        self._beyond_ns: dict[int, dict[str, float]] = {}  # of long ones beyond that, by the bits of their length

    def learn(self, steps: Sequence[Step]) -> None:
        """Timed steps of one window."""
        if not steps:
            return
        limit_ns = _LONG * median(step.total_ns for step in steps)
        usual = [step.phases for step in steps if step.total_ns <= limit_ns]
        self._usual_ns = {name: sums / len(usual) for name, sums in summed(usual).items()}
        for sums in self._beyond_ns.values():
            for name in sums:
                sums[name] *= _DECAY
        for step in steps:
            if step.total_ns > limit_ns:
                sums = self._beyond_ns.setdefault(step.total_ns.bit_length(), {})
                for name, ns in step.phases.items():
                    sums[name] = sums.get(name, 0.0) + max(0.0, ns - self._usual_ns.get(name, 0.0))

    def divide(self, count: int, total_ns: int, pauses_ns: Sequence[int] = ()) -> dict[str, int]:
        """The phases of so many counted steps that took so long together; none before a step was timed.

        ``pauses_ns``: how long those of them took that were long ones.
        """
        each_ns = sum(self._usual_ns.values())
        if each_ns <= 0:
            return {}
        ratio = min(1.0, total_ns / (count * each_ns)) if count else 0.0
        phases = {name: ns * count * ratio for name, ns in self._usual_ns.items()}
        left_ns = total_ns - sum(phases.values())
        for pause_ns in sorted(pauses_ns, reverse=True):
            beyond_ns = min(left_ns, max(0.0, pause_ns - each_ns))
            left_ns -= beyond_ns
            bits = pause_ns.bit_length()
            self._share_out(beyond_ns, phases, range(bits - 1, bits + 2))
        longest_ns = int(left_ns + each_ns)  # a step that took longer cannot be one of them
        self._share_out(left_ns, phases, range(longest_ns.bit_length() + 1))
        whole = {name: int(ns) for name, ns in phases.items()}
        whole[max(whole, key=whole.__getitem__)] += total_ns - sum(whole.values())
        return whole

    def _share_out(self, beyond_ns: float, phases: dict[str, float], lengths: Iterable[int]) -> None:
        """Add this much like what timed steps of these lengths took beyond the usual."""
        shares: dict[str, float] = {}
        for bits in lengths:
            for name, ns in self._beyond_ns.get(bits, {}).items():
                shares[name] = shares.get(name, 0.0) + ns
        known_ns = sum(shares.values())
        if known_ns <= 0:
            shares, known_ns = {BETWEEN if BETWEEN in phases else "other": 1.0}, 1.0
        for name, ns in shares.items():
            phases[name] = phases.get(name, 0.0) + beyond_ns * ns / known_ns


def summed(phases: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Sums by phase."""
    sums: dict[str, int] = {}
    for each in phases:
        for name, duration_ns in each.items():
            sums[name] = sums.get(name, 0) + duration_ns
    return sums
