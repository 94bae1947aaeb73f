"""A standstill in words: ``rank 17 in open() data.py:40, 31 ranks in all_reduce() train.py:12``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tuimon.session.standing.standing import BESIDE, Standing
from tuimon.text import code_place, plain


def groups_text(groups: Sequence[Standing], most: int) -> str:
    """The first groups in words; threads only where the training waits for them."""
    return ", ".join(group_text(group) for group in groups[:most] if group.kind not in BESIDE)


def group_text(group: Standing) -> str:
    """``3 ranks (0-2) in backward() train.py:9``; ``a worker of rank 1 in open() data.py:40``."""
    return f"{who_text(group)} {what_text(group)}"


def who_text(group: Standing) -> str:
    """``rank 3``, ``31 ranks``, ``a worker of rank 3``, ``the training``, ``2 threads of rank 1``."""
    if group.role in ("thread", "worker"):
        of = f" of {ranks_text(group.ranks)}" if group.ranks else ""
        return f"a {group.role}{of}" if group.number == 1 else f"{group.number} {group.role}s{of}"
    if not group.ranks:
        return "the training" if group.number == 1 else f"{group.number} processes"
    return f"rank {group.ranks[0]}" if len(group.ranks) == 1 else f"{len(group.ranks)} ranks"


def what_text(group: Standing) -> str:
    """``in open() data.py:40``, ``is stopped at train.py:9``, ``has an unknown stack: ...``."""
    verb = "are" if group.number > 1 else "is"
    spot = f" {code_place(group.place.file, group.place.line)}" if group.place is not None else ""
    if group.kind == "stopped":
        return f"{verb} stopped" + (f" at{spot}" if spot else "")
    if group.kind == "ended":
        return f"{'have' if group.number > 1 else 'has'} ended"
    if group.kind == "unknown":
        why = f": {plain(group.doing)}" if group.doing else ""
        return f"{'have' if group.number > 1 else 'has'} an unknown stack{why}"
    if group.kind == "batch":
        return f"{verb} waiting for a batch{spot}"
    return f"in {plain(group.doing)}{spot}"


def ranks_text(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0-3, 6``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_list(ranks)}"


def rank_list(ranks: Sequence[int]) -> str:
    """``0-3, 6``, of ascending numbers."""
    if not ranks:
        return ""
    runs = [[ranks[0], ranks[0]]]
    for before, rank in pairwise(ranks):
        if rank == before + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def group_json(group: Standing) -> dict[str, Any]:  # Any: JSON
    """A group as programs read it."""
    place = group.place
    return {
        "who": who_text(group),
        "kind": group.kind,
        "role": group.role,
        "ranks": list(group.ranks),
        "pids": list(dict.fromkeys(group.pids)),
        "doing": group.doing,
        "where": {"file": place.file, "line": place.line, "function": place.function} if place is not None else None,
        "frames": [{"file": frame.file, "line": frame.line, "function": frame.function} for frame in group.frames],
    }
