"""What a training does while it makes no steps, in words."""

from __future__ import annotations

from tuimon.diagnosis.words import at
from tuimon.session.state import RunState, StateName
from tuimon.views.format import duration, plain

_NAMES: dict[StateName, str] = {
    "starting": "starting",
    "training": "training",
    "step_open": "one step open",
    "between_steps": "no step",
}


def state_text(state: RunState) -> str:
    """``starting for 14s: importing transformers, 12s``; ``one step open for 20s, 14 backwards: in forward``."""
    return f"{state_name(state)} {state_details(state)}".rstrip()


def state_name(state: RunState) -> str:
    """``starting``, ``one step open``."""
    return _NAMES[state.name]


def state_details(state: RunState) -> str:
    """``for 14s: importing transformers, 12s``."""
    head = [f"for {duration(state.for_s)}"] if state.for_s is not None else []
    if state.backwards:
        head.append(f"{state.backwards} {'backward' if state.backwards == 1 else 'backwards'}")
    place = at(state.place) if state.place is not None else ""
    inside = " at ".join(filter(None, (plain(state.doing or ""), place)))
    if inside and state.doing_for_s:
        inside += f", {duration(state.doing_for_s)}"
    return ": ".join(filter(None, (", ".join(head), inside)))
