"""The ranks of a training as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuimon.views.report.ranks_json import WELL
from tuimon.views.report.step_json import Json

#: Ranks that are shown at once; of more, those that hold the others up come first and the rest unfolds.
_SHOWN = 16
#: Columns that are left out where no rank has them: key, heading.
_TIMES = (("late_ms", "late by"), ("wait_ms", "waits for others"))


def ranks_table(ranks: Sequence[dict[str, Json]]) -> dict[str, Any]:  # Any: what the template draws
    """The rows shown at once, the rest in order of rank, and the columns that any rank has."""
    rows = [{**rank, "bar": _bar(rank)} for rank in ranks]
    times = [(key, title) for key, title in _TIMES if any(rank.get(key) is not None for rank in ranks)]
    if len(rows) <= _SHOWN:
        return {"first": rows, "rest": [], "times": times}
    worst = sorted(range(len(rows)), key=lambda at: _gravity(rows[at]))[:_SHOWN]
    rest = [row for at, row in enumerate(rows) if at not in set(worst)]
    return {"first": [rows[at] for at in worst], "rest": rest, "times": times}


def _gravity(rank: dict[str, Json]) -> tuple[bool, float]:
    """Ranks that are not well come first, then the latest."""
    return rank.get("state", "ended") in WELL, -(rank.get("late_ms") or 0.0)


def _bar(rank: dict[str, Json]) -> list[tuple[str, float, float]]:
    """Phases of its step as (name, left, width), in shares of the whole bar."""
    bar, left = [], 0.0
    for phase in rank["phases"]:
        if phase["name"] != "eval":
            bar.append((phase["name"], left, phase["share"]))
            left += phase["share"]
    return bar
