"""A Finding: the verdict of one rule on a training, and the fixes for it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct, field

from tuimon.records import Place

Severity = Literal["critical", "warning", "info", "benign"]
#: The ends of a fix's gain are at most this factor apart: our choice; what is less certain is no estimate.
WIDEST_RANGE = 2.0


class Change(NamedTuple):
    """A change of the step by a fix: a parameter, and its new value.

    For ``items`` (making batches), ``fetch`` (the training thread's own work for one), ``hand_over`` (what workers cost
    the training thread: handing batches over, starting them), ``model`` (Python code that it runs) and work beside
    the training it is the share of the time
    that is left; of ``workers`` their number; of ``persistent`` (workers) 1; of ``sync``
    (waits for the GPU) 0.
    """

    what: Literal[
        "items", "fetch", "hand_over", "workers", "persistent",
        "side_work", "sync", "evaluation", "optimizer", "collections", "gil", "communication",
        "model",
    ]  # fmt: skip
    to: float


class Fix(NamedTuple):
    """An action and its gain: step time now / then, as estimated, at least and at most.

    Each is None if it is unknown; ``high`` is infinite where a fix may gain more than any evidence shows.
    """

    action: str
    estimated_speedup: float | None = None
    low: float | None = None
    high: float | None = None
    change: Change | None = None  # None: no parameter of the step


class Finding(Struct, frozen=True):
    """One verdict.

    ``headline`` is one sentence for the verdict line; ``share_of_step`` is 0..1 of the step's wall time. ``action``,
    ``estimated_speedup`` and the two beside it are of the best fix: time of a step and its part of the evaluation, now
    / without the cause, never above what the evidence bears, and the ends of that, where they differ from it.
    ``other_fixes`` follow, best first. ``critical`` and ``warning`` are what a rule proposes: ``diagnosis.severity``
    makes them follow from the gain.
    """

    rule: str
    severity: Severity
    headline: str
    action: str
    cause: str | None = None
    share_of_step: float | None = None
    where: tuple[Place, ...] = ()
    evidence: dict[str, float | int | str | None] = field(default_factory=dict)
    estimated_speedup: float | None = None
    speedup_at_least: float | None = None
    speedup_at_most: float | None = None
    other_fixes: tuple[Fix, ...] = ()
    change: Change | None = None  # of the best fix
    elsewhere: bool = False  # on another node than the process in focus: it explains nothing of that one

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """All fixes, best first; none where there is nothing to do."""
        if not self.action:
            return self.other_fixes
        estimated, low = self.estimated_speedup, self.speedup_at_least
        low = estimated if low is None or estimated is None else low
        return (Fix(self.action, estimated, low, self._at_most(), self.change), *self.other_fixes)

    def _at_most(self) -> float | None:
        """The upper end of the best fix's gain: the evidence's bound, or the end of the estimate's own range."""
        bound = self.evidence.get("speedup_at_most", self.speedup_at_most)
        high = bound if isinstance(bound, (int, float)) else self.speedup_at_most or self.estimated_speedup
        return max(high, self.estimated_speedup or 0.0) if high is not None else None
