"""Rules that judge a Session: one file per family, each rule a function from Session and process to Finding or None."""

from __future__ import annotations

from collections.abc import Callable

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.host import compute_bound_cpu, side_work
from tuimon.diagnosis.input import input_bound
from tuimon.diagnosis.rank import ranked
from tuimon.diagnosis.start import warmup
from tuimon.session.session import Session

Rule = Callable[[Session, int], Finding | None]

RULES: tuple[Rule, ...] = (input_bound, side_work, compute_bound_cpu)


def diagnose(session: Session) -> list[Finding]:
    """What the rules find in the process in focus, most important first; during warm-up nothing else is judged."""
    pid = session.trainer()
    if pid is None:
        return []
    beginning = warmup(session, pid)
    if beginning is not None:
        return [beginning]
    return ranked([finding for rule in RULES if (finding := rule(session, pid)) is not None])
