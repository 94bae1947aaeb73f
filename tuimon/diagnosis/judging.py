"""The rules at work: a Session's findings, most important first, and which rules had nothing to judge by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.attribution import attributed
from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.diagnosis.evidence.steps import FIRST_STEPS
from tuimon.diagnosis.finding import Finding, graded, within_share
from tuimon.diagnosis.rule import NEEDS, Rule
from tuimon.diagnosis.rulebook import BY_NAME, RULES, ranked
from tuimon.diagnosis.rules.course import WARMUP
from tuimon.diagnosis.rules.warned import with_warnings
from tuimon.session.session import Session


def diagnose(session: Session) -> list[Finding]:
    """The findings on the process in focus."""
    pid = session.trainer()
    return judge(evidence_of(session.over("recent"), pid)) if pid is not None else []


def diagnose_state(session: Session) -> list[Finding]:
    """The findings of rules about a moment: no other rule judges a loop that stands still."""
    pid = session.trainer()
    rules = [rule for rule in RULES if rule.of_moment]
    if pid is None:
        return []
    evidence = evidence_of(session.over("recent"), pid)
    return _ranked(_found(evidence, rules), evidence)


def diagnose_run(session: Session, states: Sequence[Finding]) -> list[Finding]:
    """The findings on all of the run's steady part; ``states``: those of rules about a moment."""
    pid = session.trainer()
    evidence = evidence_of(session.over("whole"), pid) if pid is not None else None
    if evidence is not None and evidence.run.has_ended:
        hangs = any(state.rule == "hang" for state in states)  # its stacks say more than the end does
        ending = _found(
            evidence, [rule for rule in RULES if rule.needs_no_step and not (hangs and rule.name == "hang")]
        )
        ended = {finding.rule for finding in ending}
        states = [*ending, *(state for state in states if state.rule not in ended)]
    if (
        evidence is None
        or not evidence.steps.has_ended
        or (evidence.steps.are_marked and evidence.steps.totals.steps < FIRST_STEPS)
    ):
        return _ranked(states, evidence)
    rules = [rule for rule in RULES if not rule.of_moment and rule is not WARMUP]
    return _ranked([*_found(evidence, rules), *states], evidence, tells_rest=True)


def judge(evidence: Evidence) -> list[Finding]:
    """The findings, most important first; almost none before the first whole step and during warm-up."""
    if not evidence.steps.has_ended:
        return _ranked(_found(evidence, [rule for rule in RULES if rule.needs_no_step]), evidence)
    if beginning := _found(evidence, [WARMUP]):
        return beginning
    return _ranked(_found(evidence, [rule for rule in RULES if rule is not WARMUP]), evidence, tells_rest=True)


def _ranked(findings: Iterable[Finding], evidence: Evidence | None, *, tells_rest: bool = False) -> list[Finding]:
    left = attributed(findings, BY_NAME, evidence, tells_rest=tells_rest)
    found = ranked([_graded(finding) for finding in left])  # fixes of others may have come
    return with_warnings(found, evidence) if evidence is not None else found


def _found(evidence: Evidence, rules: Sequence[Rule]) -> list[Finding]:
    judged = ((rule, rule.judge(evidence)) for rule in rules)
    found = (replace(finding, rule=rule.name) for rule, finding in judged if finding is not None)
    return [_graded(within_share(finding)) for finding in found]


def _graded(finding: Finding) -> Finding:
    return finding if BY_NAME[finding.rule].is_harm else graded(finding)


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
