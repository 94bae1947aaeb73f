"""Trainings side by side, as the report's JSON has them: the report is of one, and names what was found in each."""

from __future__ import annotations

from tuimon.diagnosis.verdicts import Verdicts
from tuimon.node_ids import own_id
from tuimon.session.session import Session
from tuimon.session.trainings import TrainingRow, training_rows
from tuimon.views.finding_text import headline_text
from tuimon.views.report.step_json import Json, steps_json

#: Most trainings that are listed, and most findings of each.
_LISTED, _FINDINGS = 16, 3


def trainings_json(session: Session) -> dict[str, Json]:
    """``trainings``, as they began; nothing of a run of one."""
    rows = training_rows(session)
    if len(rows) < 2:
        return {}
    return {"trainings": [_training(session, row) for row in rows[:_LISTED]]}


def _training(session: Session, row: TrainingRow) -> dict[str, Json]:
    pid = row.first.pid
    return {
        "number": row.number,
        "in_focus": row.in_focus,
        "ranks": row.ranks,
        "pid": own_id(pid),
        "command": list(row.command),
        "steps": steps_json(session.over("whole").steps(pid)),
        "findings": _findings(session, pid),
    }


def _findings(session: Session, pid: int) -> list[dict[str, Json]]:
    """The findings on the training of a process, by itself."""
    chosen = session.chosen
    session.focus_on(pid)
    try:
        found = Verdicts().judge_run(session) if session.trainer() is not None else []
    finally:
        session.focus_on(chosen)
    return [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "cause": finding.cause,
            "headline": headline_text(finding.headline, finding.where),
        }
        for finding in found[:_FINDINGS]
    ]
