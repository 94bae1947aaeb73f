"""How much of what a run waits for a core is the doing of others, and of whom."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tuimon.diagnosis.evidence.demand import Demand
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.processes.core_use import CoresTaken

WANTED_RATIO = Threshold(
    1.3,
    "times the cores there are that the run's threads want, from which these are too few",
    "measured in tests/scenarios on 2 cores: up to 1.2 where trainer and workers share them well (slow_augmentation,"
    " big_gradients), 1.8 and more in two_greedy_trainings and too_many_threads",
)
OWN_CORES = Threshold(
    0.9,
    "of the machine's cores that the run uses by itself, from which its waits for a core are its own doing",
    "our choice: what is left are the system's own threads and the monitor",
)
#: Cores that lie idle on average, from which nobody waits long for one that another program uses: our choice.
_IDLE = 1.0
Outside = Literal["programs", "host", "limit", "unknown"]


class OutsideWaits(Struct, frozen=True, gc=False):
    """A run's waits for a core that others cause."""

    part: float = 0.0  # at most, of all its waits
    by: Outside = "unknown"  # who causes most of them; unknown where nothing of others is measured
    cores: float | None = None  # that they took

    @property
    def own_part(self) -> float:
        """The time that the run's threads wait for each other, at least."""
        return 1.0 - self.part


def waits_from_outside(demand: Demand | None, taken: CoresTaken | None) -> OutsideWaits:
    """The time that a run waits for cores which others use.

    A core that others use for a second keeps the run from it for a second at most. Any wait of its threads beyond
    that in total, they wait for one another: of 1 s of waits beside programs that use 0.2 s, 0.2 s are theirs. The same
    goes for cores that the host of a virtual machine gives to others, and for those that a CPU limit holds back.
    """
    if demand is None or demand.delay <= 0.0:
        return OutsideWaits()
    if taken is None:
        return OutsideWaits(_by_its_threads(demand))
    programs = taken.others if taken.idle is None or taken.idle < _IDLE else 0.0
    sources: dict[Outside, float] = {"limit": taken.held, "host": taken.stolen, "programs": programs}
    total = sum(sources.values())
    most = max(sources, key=lambda name: sources[name])
    return OutsideWaits(min(1.0, total / demand.delay), most, sources[most])


def _by_its_threads(demand: Demand) -> float:
    """The share where it is unknown what others used: all, unless the run itself wants as many cores as there are."""
    crowded = sum(demand.busy_threads.values()) > demand.cores
    wants_all = demand.cpu >= OWN_CORES * demand.cores or demand.wanted >= WANTED_RATIO * demand.cores
    return 0.0 if crowded or wants_all else 1.0
