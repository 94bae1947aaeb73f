"""Which rules had nothing to judge by, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.diagnosis.rule import NEEDS
from tuimon.diagnosis.rulebook import RULES
from tuimon.session.session import Session


class Unjudged(NamedTuple):
    """A rule, or a part of it, that abstains for want of evidence."""

    rule: str
    reason: str


def unjudged(session: Session) -> list[Unjudged]:
    """The rules that could not judge the process in focus, with the reason."""
    pid = session.trainer()
    if pid is None:
        return [Unjudged("all", "no training process was seen")]
    return list(missing(evidence_of(session.over("recent"), pid)))


def missing(evidence: Evidence) -> Iterator[Unjudged]:
    """Every rule that lacks some evidence, once for each reason."""
    for need in NEEDS:
        reason = need.missing(evidence)
        if reason is None:
            continue
        if need.reported_as is not None:
            yield Unjudged(need.reported_as, reason)
        else:
            yield from (Unjudged(rule.name, reason) for rule in RULES if need in rule.needs)
