"""Standstills for people and for programs: when, for how long, and where all ranks stood."""

from __future__ import annotations

from typing import Any

from tuimon.session.session import Session
from tuimon.session.standing import Past, Standing, Stuck, group_json, group_text, groups_text, rank_list, standing
from tuimon.views.format import count, duration, plain

#: Groups that one line names, and that a short list shows.
_IN_LINE = 3
_LISTED = 8


def head_text(past: Past, session: Session) -> str:
    """``nothing moved for 41s, at 1m12s, step 340``; of one that goes on, until the latest record."""
    until_s = past.ended_s if past.ended_s is not None else session.now_s
    start_s = session.start_s if session.start_s is not None else past.since_s
    step = f", step {count(past.step)}" if past.step is not None else ""
    return f"nothing moved for {duration(until_s - past.since_s)}, from {duration(past.since_s - start_s)} on{step}"


def line_text(past: Past, session: Session) -> str:
    """``nothing moved for 41s, ...: rank 3 in open() data.py:40, 7 ranks in all_reduce() train.py:50``."""
    stands = "; ".join([*(one.text for one in past.stuck), groups_text(standing(past.taken), _IN_LINE)])
    return f"{head_text(past, session)}: {stands}"


def list_lines(past: Past) -> list[str]:
    """The stacks in a few lines: a group each, with its ranks and the text of its line; nobody who waits for work."""
    groups = [group for group in standing(past.taken) if group.kind != "idle"]
    lines = [f"flight recorder: {one.text}" for one in past.stuck]
    lines.append(f"all stacks, taken {past.taken.quiet_s:.0f} s after the last progress:")
    for group in groups[:_LISTED]:
        source = f": {plain(group.place.source).strip()}" if group.place is not None and group.place.source else ""
        lines.append(f"  {group_text(group)}{ranks_note(group)}{source}")
    if len(groups) > _LISTED:
        lines.append(f"  and {len(groups) - _LISTED} more groups (key S in the full screen)")
    return lines


def ranks_note(group: Standing) -> str:
    """`` (ranks 0-2, 5)`` behind ``4 ranks``; empty where the words name them already."""
    return f" (ranks {rank_list(group.ranks)})" if group.role == "rank" and len(group.ranks) > 1 else ""


def stuck_json(one: Stuck) -> dict[str, Any]:  # Any: JSON
    """A collective that does not end, as programs read it."""
    return {
        "text": plain(one.text),
        "group": one.group,
        "number": one.number,
        "name": one.name,
        "waiting": list(one.waiting),
        "missing": list(one.missing),
        "elsewhere": [rank for rank, _ in one.elsewhere],
        "unknown": list(one.unknown),
    }


def standstill_json(past: Past, session: Session) -> dict[str, Any]:  # Any: JSON
    """For ``report --format json``; ``lasted_s`` is null where it went on to the end of the log."""
    start_s = session.start_s if session.start_s is not None else past.since_s
    return {
        "at_s": round(past.since_s - start_s, 4),
        "step": past.step,
        "lasted_s": round(past.ended_s - past.since_s, 4) if past.ended_s is not None else None,
        "taken_after_s": past.taken.quiet_s,
        "text": line_text(past, session),
        "groups": [group_json(group) for group in standing(past.taken)],
        **({"collectives": [stuck_json(one) for one in past.stuck]} if past.stuck else {}),
    }
