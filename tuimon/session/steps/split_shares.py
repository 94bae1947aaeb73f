"""How stack samples divide the time that markers leave open."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from tuimon.records import BETWEEN
from tuimon.session.steps.totals import Totals

#: Samples find some phases more often than others, by no more than this factor: our choice.
MOST_FOUND = 1.5


class Moved(Struct, frozen=True, gc=False):
    """Work that the markers count in one phase, and samples show to be of another."""

    of: str
    to: str
    share: float  # of the step
    samples: int  # of all of it
    at_most: float | None = None  # share of all that it is moved to: only what markers do not show of this is moved

    @property
    def error(self) -> float:
        """Half width of the 95 % interval of the share (binomial, normal approximation, never below 1/n)."""
        return max(_half_width(self.share, self.samples), 1.0 / self.samples)


class Counted(Struct, frozen=True, gc=False):
    """How many samples of each phase may lie in ``between``, and how many lie where the markers measure it."""

    all: int  # of steps
    between: Mapping[str, int]
    measured: Mapping[str, int]


class SplitShares(Struct):
    """How stack samples divide the ``between`` time into data, forward, optimizer and other, and the error of that."""

    shares: dict[str, float]
    samples: int
    optimizer: float | None = None  # its share of all samples, where closures run inside it
    unsure: float = 0.0  # of "forward", the part that may be "data"
    unknown: float = 0.0  # of "other", the part that may be either of them
    moved: tuple[Moved, ...] = ()
    counted: Counted | None = None
    errors: dict[str, float] = {}  # of shares that were worked out, at least

    def fitted(self, totals: Totals) -> SplitShares:
        """The shares with what the times of the markers show of them."""
        return self.with_optimizer(totals) if self.optimizer is not None else self.without_measured(totals)

    def without_measured(self, totals: Totals) -> SplitShares:
        """The shares without samples for which ``between`` has no room: what the markers measure of a phase holds them.

        Nothing may show on which side of a marker a framework's callbacks lie. Worked example: the markers show 40 %
        of the step in "other" and 15 % between; of 100 samples 40 are of "other", 15 of the forward pass, all of them
        maybe between. There is room for 15 there; 40 of "other" were measured, and what is left is the forward pass.
        """
        counted, between_ns = self.counted, totals.phases.get(BETWEEN, 0)
        whole_ns = sum(ns for name, ns in totals.phases.items() if name != "eval")
        if counted is None or not between_ns or not counted.all:
            return self
        room = between_ns / whole_ns
        found = sum(counted.between.values()) / counted.all
        if found <= MOST_FOUND * room or found <= room + _half_width(room, counted.all):
            return self
        left = {
            name: max(
                0.0, n - max(0.0, counted.all * totals.phases.get(name, 0) / whole_ns - counted.measured.get(name, 0))
            )
            for name, n in counted.between.items()
        }
        total = sum(left.values())
        if not total:
            return self
        errors = {
            name: min(1.0, _half_width(n / counted.all, counted.all) / room) for name, n in counted.between.items()
        }
        own = 1.0 - self.shares.get("eval", 0.0)
        shares = {**self.shares, **{name: own * n / total for name, n in left.items()}}
        return replace(self, shares=shares, errors=errors, counted=None)

    def with_optimizer(self, totals: Totals) -> SplitShares:
        """The shares with the optimizer's own work between two of its closures: its samples, less what markers show."""
        between_ns = totals.phases.get(BETWEEN, 0)
        if self.optimizer is None or not between_ns:
            return self
        whole_ns = sum(ns for name, ns in totals.phases.items() if name != "eval")
        own_ns = self.optimizer * whole_ns - totals.phases.get("optimizer", 0)
        part = min(1.0, max(0.0, own_ns / between_ns))
        shares = {name: share * (1.0 - part) for name, share in self.shares.items()}
        left = 1.0 - part
        unsure, unknown = self.unsure * left, self.unknown * left
        return replace(self, shares={**shares, "optimizer": part}, optimizer=None, unsure=unsure, unknown=unknown)

    def error(self, name: str) -> float:
        """Half width of the 95 % interval of a share (binomial, normal approximation, never below 1/n), or more."""
        p = self.shares.get(name, 0.0)
        if not self.samples:
            return 1.0
        return max(_half_width(p, self.samples), 1.0 / self.samples, self.unsure_of(name))

    def unsure_of(self, name: str) -> float:
        """How far a share may be off because nothing shows yet which phase the lines belong to."""
        own = self.errors.get(name, 0.0)
        if name in ("data", "forward"):
            return max(own, self.unsure + self.unknown)
        return max(own, self.unknown) if name == "other" else own


def _half_width(share: float, samples: int) -> float:
    """Half the width of the 95 % interval of a share (binomial, normal approximation)."""
    width: float = 1.96 * (share * (1 - share) / samples) ** 0.5
    return width
