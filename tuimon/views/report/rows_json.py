"""Steps, phases, ranks, nodes and trainings as the report's JSON has them: of many those that matter, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from tuimon.diagnosis.verdicts import Verdicts
from tuimon.node_ids import own_id
from tuimon.records import PHASES
from tuimon.session.phase_table import PhaseTable
from tuimon.session.ranks import RankRow, rank_rows, superseded, training_numbers, training_rows
from tuimon.session.session import Session, SessionView
from tuimon.session.steps import StepSummary
from tuimon.views.finding_text import headline_text
from tuimon.views.gpu_text import idle_bounds, measured_idle_ms, with_idle_bounds

#: Values of JSON: str, int, float, bool, None and lists and dicts of these.
Json = Any  # a recursive alias is beyond mypy's inference in the literals below


def steps_json(steps: StepSummary | None) -> dict[str, Json]:
    """The figures of measured steps; ``timed_share`` only where not all were timed (fast loops)."""
    steps = None if steps is not None and steps.estimated else steps
    timed = {"timed_share": rounded(steps.timed_ratio)} if steps and steps.timed_ratio < 1 else {}
    return {
        "count": steps.total if steps else 0,
        "median_ms": rounded(steps.median_ms) if steps else None,
        "p95_ms": rounded(steps.p95_ms) if steps else None,
        "per_second": rounded(steps.per_second) if steps else None,
        "dropped_markers": steps.dropped if steps else 0,
        **timed,
    }


def phases_json(table: PhaseTable | None) -> list[dict[str, Json]]:
    """Shares as the session has them; rounded late, so that they still add to 1.

    ``gpu_ms_per_step`` is the span on the GPU's clock; how long the GPU idles in it is often known between bounds only.
    """
    rows = table.rows if table else ()
    step_ms = sum(row.gpu_ms_per_step or 0.0 for row in rows if row.name != "eval")
    return [
        {
            "name": row.name,
            "share": row.share,
            "cpu_ms_per_step": rounded(row.ms_per_step),
            "gpu_ms_per_step": rounded(row.gpu_ms_per_step),
            "gpu_idle_ms_per_step": rounded(measured_idle_ms(row, step_ms)),
            **(
                {"gpu_idle_ms_low": rounded(bounds[0]), "gpu_idle_ms_high": rounded(bounds[1])}
                if (bounds := idle_bounds(row)) is not None  # only where there are GPU times
                else {}
            ),
            "estimated": row.estimated,
            "error": row.error,
        }
        for row in rows
    ]


def picked(of: object, *names: str) -> dict[str, Json]:
    """The fields of these names, numbers rounded."""
    values = {name: getattr(of, name) for name in names}
    return {name: rounded(value) if isinstance(value, float) else value for name, value in values.items()}


def rounded(value: float | None) -> float | None:
    """To four digits after the point."""
    return None if value is None else round(value, 4)


#: Most ranks that are listed unless all are wanted, and most nodes: about 100 kB of JSON.
LISTED = 64
#: A run of more ranks has a summary of them.
FEW = 16
#: States of a rank or a node that are no news.
WELL = ("training", "starting", "ended", "writing", "restarted")


def by_trouble(rank: dict[str, Json]) -> tuple[bool, float]:
    """Sorts ranks: those that are not well come first, then the latest."""
    return rank.get("state", "ended") in WELL, -(rank.get("late_ms") or 0.0)


def ranks_json(session: Session, *, full: bool = False) -> dict[str, Json]:
    """``ranks`` by rank: all, or of more than 64 those that are not well or hold the others up most."""
    pids = session.trainers()
    whole = session.over("whole")
    rows = {row.pid: row for row in rank_rows(whole)} if len(pids) > 1 else {}
    by_worst = sorted(pids, key=lambda pid: by_trouble(picked(rows[pid], "state", "late_ms") if pid in rows else {}))
    chosen = set(pids if full or len(pids) <= LISTED else by_worst[:LISTED])
    earlier = superseded(session) if rows else set()
    numbers = training_numbers(session)
    ranks = [
        _rank(whole, pid, rows.get(pid), is_earlier=pid in earlier)
        | ({"training": numbers[pid]} if pid in numbers else {})
        for pid in pids
        if pid in chosen
    ]
    return {"ranks": ranks, **({"ranks_summary": _summary(whole, pids)} if len(pids) > FEW else {})}


def nodes_json(session: Session) -> dict[str, Json]:
    """The name of a run and its ``nodes``, those that are not well first; nothing of a run on one machine."""
    header, known = session.header, list(session.nodes.known.values())
    if not known:
        return {}
    ordered = sorted(known, key=lambda node: (node.state in WELL, not node.exit_code, -node.behind_s, node.number))
    nodes = [picked(node, "host", "state", "behind_s", "exit_code") for node in ordered[:LISTED]]
    return {"name": header.run if header else None, "node_count": len(known), "nodes": nodes}


def _rank(run: SessionView, pid: int, row: RankRow | None, *, is_earlier: bool) -> dict[str, Json]:
    """``late_ms``: by how much its own work is longer than the others', a step; ``wait_ms``: that it waits for them.

    ``is_earlier``: another process has taken its rank since.
    """
    process = run.process(pid)
    among_ranks: dict[str, Json] = {}
    if row is not None:
        among_ranks = picked(row, "state", "late_ms", "wait_ms")
        among_ranks |= {"restarts": row.restarts} if row.restarts else {}
    elif is_earlier:
        among_ranks = {"state": "restarted"}
    return {
        "pid": own_id(pid),
        **({"host": run.session.host_of(pid)} if run.session.nodes.known else {}),
        "rank": process.rank if process else None,
        "world_size": process.world_size if process else None,
        "markers": process.markers if process else False,
        "gpus": list(process.gpu_uuids) if process else [],
        "steps": steps_json(run.steps(pid)),
        "phases": phases_json(with_idle_bounds(run, pid)[0]),
        **among_ranks,
    }


def _summary(run: SessionView, pids: Sequence[int]) -> dict[str, Json]:
    """Summary of all ranks: least, median and most of steps and step times, the median of each phase's share."""
    steps = [found for pid in pids if (found := run.steps(pid)) is not None and not found.estimated]
    tables = [table for pid in pids if (table := run.phases(pid)) is not None]
    shares = {name: [row.share for table in tables for row in table.rows if row.name == name] for name in PHASES}
    return {
        "count": len(pids),
        "steps": _spread([found.total for found in steps]),
        "median_ms": _spread([found.median_ms for found in steps if found.median_ms is not None]),
        "phases": [{"name": name, "share": rounded(median(known))} for name, known in shares.items() if known],
    }


def _spread(values: Sequence[float]) -> list[float | None] | None:
    return [rounded(min(values)), rounded(median(values)), rounded(max(values))] if values else None


#: Most trainings that are listed, and most findings of each.
_LISTED, _FINDINGS = 16, 3


def trainings_json(session: Session) -> dict[str, Json]:
    """``trainings``, as they began; nothing of a run of one."""
    rows = training_rows(session)
    if len(rows) < 2:
        return {}
    trainings = [
        {
            **picked(row, "number", "in_focus", "ranks"),
            "pid": own_id(row.first.pid),
            "command": list(row.command),
            "steps": steps_json(session.over("whole").steps(row.first.pid)),
            "findings": _findings(session, row.first.pid),
        }
        for row in rows[:_LISTED]
    ]
    return {"trainings": trainings}


def _findings(session: Session, pid: int) -> list[dict[str, Json]]:
    """The findings on the training of a process, by itself."""
    chosen = session.chosen
    session.focus_on(pid)
    try:
        found = Verdicts().judge_run(session) if session.trainer() is not None else []
    finally:
        session.focus_on(chosen)
    return [
        {**picked(finding, "rule", "severity", "cause"), "headline": headline_text(finding.headline, finding.where)}
        for finding in found[:_FINDINGS]
    ]
