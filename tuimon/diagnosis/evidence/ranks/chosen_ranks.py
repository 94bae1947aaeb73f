"""The ranks of a training that rules judge one by one: all of a thousand would take a second."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.session.ranks.row import RankRow

#: Most ranks whose samples and GPU times are judged one by one: 0.5 ms each, and what a rule needs of them shows in
#: these: who waits least is among the latest, and what all wait is alike in all.
_MOST = 32
#: As many of the latest ranks are always among them: others may be late with the first.
_LATEST = 8


def chosen_ranks(focus: int, rows: Sequence[RankRow]) -> set[int]:
    """The processes of all ranks; of more than 32 the latest, and of the others as many, evenly spread."""
    pids = [row.pid for row in rows]
    if len(pids) <= _MOST:
        return {focus, *pids}
    latest = sorted(rows, key=lambda row: -(row.late_ms or 0.0))[:_LATEST]
    stride = -(-len(pids) // (_MOST - _LATEST))
    return {focus, *(row.pid for row in latest), *pids[::stride]}
