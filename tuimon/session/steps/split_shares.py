"""How stack samples divide the time that markers leave open."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tuimon.records import BETWEEN
from tuimon.session.steps.totals import Totals
from tuimon.session.windows import sampling_error

#: Samples find some phases more often than others, by no more than this factor: our choice.
MOST_FOUND = 1.5


class Moved(Struct, frozen=True, gc=False):
    """Work that the markers count in one phase, and samples show to be of another."""

    of: str
    to: str
    share: float  # of the step
    samples: int  # of all of it

    @property
    def error(self) -> float:
        """Half width of the 95 % interval of the share (binomial, normal approximation, never below 1/n)."""
        return max(sampling_error(self.share, self.samples), 1.0 / self.samples)


class SplitShares(Struct):
    """How stack samples divide the ``between`` time into data, forward, optimizer and other, and the error of that."""

    shares: dict[str, float]
    samples: int
    optimizer: float | None = None  # its share of all samples, where closures run inside it
    unsure: float = 0.0  # of "forward", the part that may be "data"
    unknown: float = 0.0  # of "other", the part that may be either of them
    moved: tuple[Moved, ...] = ()

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
        return max(sampling_error(p, self.samples), 1.0 / self.samples, self.unsure_of(name))

    def unsure_of(self, name: str) -> float:
        """How far a share may be off because nothing shows yet which phase the lines belong to."""
        if name in ("data", "forward"):
            return self.unsure + self.unknown
        return self.unknown if name == "other" else 0.0
