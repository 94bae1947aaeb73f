"""The findings of a whole run: what the rules found from moment to moment, weighed by how long it held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.hysteresis import Change, Hysteresis
from tuimon.diagnosis.judging import diagnose
from tuimon.session.session import Session

#: A finding that held for less than this share of the judged time is a passing state, no property of the run: our
#: choice; a phase of the run shorter than a tenth is better read from the changes.
PASSING_RATIO = 0.1
#: A cause that was named for this share of the time its rule held is its cause: our choice; moments without one are
#: those with too few samples to name it.
NAMED_RATIO = 0.2


@dataclass(slots=True)
class _Held:
    """How long one rule found something, for which cause, and how long nothing was more important."""

    total_s: float = 0.0
    primary_s: float = 0.0
    by_cause: dict[str | None, float] = field(default_factory=dict)
    latest: dict[str | None, Finding] = field(default_factory=dict)

    def finding(self) -> Finding:
        """The latest with the cause that held longest; a moment without one counts less than any that names it."""
        named = {cause: s for cause, s in self.by_cause.items() if cause is not None}
        if not named or max(named.values()) < NAMED_RATIO * self.total_s:
            return self.latest[max(self.by_cause, key=lambda cause: self.by_cause[cause])]
        return self.latest[max(named, key=lambda cause: named[cause])]


class Verdicts:
    """Collects findings over time: the rules judge a sliding window, and how a run winds down is no verdict on it."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._judged_s = 0.0  # without warm-up
        self._hysteresis = Hysteresis()

    @property
    def changes(self) -> Sequence[Change]:
        """When the primary verdict changed, oldest first."""
        return self._hysteresis.changes

    def judge_moment(self, session: Session, lasting_s: float) -> list[Finding]:
        """What the rules find now, without flicker; it stands for the ``lasting_s`` seconds since the last call."""
        pid = session.trainer()
        stats = session.step_stats(pid) if pid is not None else None
        found = diagnose(session)
        ordered = self._hysteresis.order(found, session.now_s, stats.total if stats else None)
        if lasting_s > 0:
            rules = {finding.rule for finding in found}
            self.add_findings([finding for finding in ordered if finding.rule in rules], lasting_s)
        return ordered

    def add_findings(self, findings: Sequence[Finding], lasting_s: float) -> None:
        """What the rules found at one moment, most important first; it stands for ``lasting_s`` seconds."""
        if not any(finding.rule == "warmup" for finding in findings):
            self._judged_s += lasting_s
        for place, finding in enumerate(findings):
            held = self._held.setdefault(finding.rule, _Held())
            held.total_s += lasting_s
            held.primary_s += lasting_s if place == 0 else 0.0
            held.by_cause[finding.cause] = held.by_cause.get(finding.cause, 0.0) + lasting_s
            held.latest[finding.cause] = finding

    def ranked(self) -> list[Finding]:
        """One finding for every rule that held for long enough, what was primary longest first.

        Warm-up is the verdict only on a run that never got further.
        """
        if self._judged_s == 0.0:
            return [held.finding() for held in self._held.values()]
        lasting = [
            held
            for rule, held in self._held.items()
            if rule != "warmup" and held.total_s >= PASSING_RATIO * self._judged_s
        ]
        return [held.finding() for held in sorted(lasting, key=lambda held: (-held.primary_s, -held.total_s))]
