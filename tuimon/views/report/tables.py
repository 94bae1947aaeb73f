"""The tables of the page: a trace, by operator, kernel and synchronisation; the ranks of a training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tuimon.views.format import count, ms, phase_name
from tuimon.views.report.ranks_json import WELL
from tuimon.views.report.step_json import Json

_ROWS = 12
#: Columns of figures.
NUMBERS = frozenset(("calls", "a step", "GPU a step"))
_OPERATOR = ("operator", "phase", "a step", "calls", "line")
_OPERATOR_GPU = ("operator", "phase", "a step", "GPU a step", "calls", "line")
#: Ranks that are shown at once; of more, those that hold the others up come first and the rest unfolds.
_SHOWN_RANKS = 16
#: Columns that are left out where no rank has them: key, heading.
_RANK_TIMES = (("late_ms", "late by"), ("wait_ms", "waits for others"))


def trace_tables(trace: dict[str, Json]) -> dict[str, Any]:  # Any: what the template draws
    """Times are a step's: sums over the trace, divided by its steps."""
    steps = max(1, trace["steps"])
    has_gpu = any(row["gpu_ns"] for row in trace["operators"])
    operators = [_work(row, steps, *([row["gpu_ns"]] if has_gpu else [])) for row in trace["operators"][:_ROWS]]
    kernels = [_work(row, steps) for row in trace["kernels"][:_ROWS]]
    syncs = [_work({**row, "name": row["operator"] or row["call"]}, steps) for row in trace["syncs"][:_ROWS]]
    tables = (
        ("Kernels", ("kernel", "phase", "a step", "calls", "line"), kernels),
        ("Where the CPU waited for the GPU", _OPERATOR, syncs),
        ("Operators", _OPERATOR_GPU if has_gpu else _OPERATOR, operators),
    )
    shown = [table for table in tables if table[2]]
    return {**trace, "head": trace["text"][:1], "tables": shown, "numbers": NUMBERS}


def _work(row: dict[str, Json], steps: int, *more_ns: float | None) -> tuple[str, ...]:
    calls = count(round(row["count"] / steps)) if row["count"] >= steps else "<1"
    times = (_each(ns, steps) for ns in (row["total_ns"], *more_ns))
    return (row["name"], phase_name(row["phase"]), *times, calls, row["where"])


def _each(total_ns: float | None, steps: int) -> str:
    return ms(None if total_ns is None else total_ns / steps / 1e6)


def ranks_table(ranks: Sequence[dict[str, Json]]) -> dict[str, Any]:  # Any: what the template draws
    """The rows shown at once, the rest in order of rank, and the columns that any rank has."""
    rows = [{**rank, "bar": phase_bar((phase["name"], phase["share"]) for phase in rank["phases"])} for rank in ranks]
    times = [(key, title) for key, title in _RANK_TIMES if any(rank.get(key) is not None for rank in ranks)]
    if len(rows) <= _SHOWN_RANKS:
        return {"first": rows, "rest": [], "times": times}
    worst = sorted(range(len(rows)), key=lambda at: _gravity(rows[at]))[:_SHOWN_RANKS]
    rest = [row for at, row in enumerate(rows) if at not in set(worst)]
    return {"first": [rows[at] for at in worst], "rest": rest, "times": times}


def _gravity(rank: dict[str, Json]) -> tuple[bool, float]:
    """Ranks that are not well come first, then the latest."""
    return rank.get("state", "ended") in WELL, -(rank.get("late_ms") or 0.0)


def phase_bar(shares: Iterable[tuple[str, float]]) -> list[tuple[str, float, float]]:
    """Phases of a step as (name, left, width), in shares of the whole bar; evaluation lies beside the step."""
    bar, left = [], 0.0
    for name, share in shares:
        if name != "eval":
            bar.append((name, left, share))
            left += share
    return bar
