"""The rules at work: a Session's findings, most important first."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rank import merged, ranked
from tuimon.diagnosis.rulebook import RULES
from tuimon.diagnosis.rules.start import WARMUP
from tuimon.session.session import Session


def diagnose(session: Session) -> list[Finding]:
    """What the rules find in the process in focus."""
    pid = session.trainer()
    return judge(evidence_of(session, pid)) if pid is not None else []


def judge(evidence: Evidence) -> list[Finding]:
    """What the rules find, most important first; during warm-up nothing else is judged."""
    beginning = WARMUP.judge(evidence)
    if beginning is not None:
        return [beginning]
    found = (rule.judge(evidence) for rule in RULES if rule is not WARMUP)
    return ranked(merged([finding for finding in found if finding is not None]))
