"""The rules at work: a Session's findings, most important first."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.diagnosis.evidence.steps import FIRST_STEPS
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.ledger.attribute import attributed
from tuimon.diagnosis.rank import ranked
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rulebook import BY_NAME, RULES
from tuimon.diagnosis.rules.start import WARMUP
from tuimon.diagnosis.severity import graded
from tuimon.session.session import Session


def diagnose(session: Session) -> list[Finding]:
    """The findings on the process in focus."""
    pid = session.trainer()
    return judge(evidence_of(session.over("recent"), pid)) if pid is not None else []


def diagnose_state(session: Session) -> list[Finding]:
    """The findings of rules about a moment: no other rule judges a loop that stands still."""
    pid = session.trainer()
    rules = [rule for rule in RULES if rule.of_moment]
    return (
        ranked(attributed(_found(evidence_of(session.over("recent"), pid), rules), BY_NAME)) if pid is not None else []
    )


def diagnose_run(session: Session, states: Sequence[Finding]) -> list[Finding]:
    """The findings on all of the run's steady part; ``states``: those of rules about a moment."""
    pid = session.trainer()
    evidence = evidence_of(session.over("whole"), pid) if pid is not None else None
    if evidence is not None and evidence.run.has_ended:
        ending = _found(evidence, [rule for rule in RULES if rule.of_end])
        ended = {finding.rule for finding in ending}
        states = [*ending, *(state for state in states if state.rule not in ended)]
    if evidence is None or not evidence.has_steps or (evidence.steps and evidence.steps.recent < FIRST_STEPS):
        return ranked(attributed(list(states), BY_NAME))
    rules = [rule for rule in RULES if not rule.of_moment and rule is not WARMUP]
    return ranked(attributed([*_found(evidence, rules), *states], BY_NAME))


def judge(evidence: Evidence) -> list[Finding]:
    """The findings, most important first; almost none before the first whole step and during warm-up."""
    if not evidence.has_steps:
        return ranked(attributed(_found(evidence, [rule for rule in RULES if rule.before_steps]), BY_NAME))
    if beginning := _found(evidence, [WARMUP]):
        return beginning
    return ranked(attributed(_found(evidence, [rule for rule in RULES if rule is not WARMUP]), BY_NAME))


def _found(evidence: Evidence, rules: Sequence[Rule]) -> list[Finding]:
    judged = ((rule, rule.judge(evidence)) for rule in rules)
    found = ((rule, replace(finding, rule=rule.name)) for rule, finding in judged if finding is not None)
    return [finding if rule.is_harm else graded(finding) for rule, finding in found]
