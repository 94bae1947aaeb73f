"""The wall time of a run in words and as JSON: how much of it trains, and what the rest goes to."""

from __future__ import annotations

from typing import Any

from tuimon.session.goodput import Goodput, goodput
from tuimon.session.session import Session
from tuimon.views.format import duration, percent

_WORDS = {"outside": "outside the loop", "after": "after the last step"}
#: Less than this part of the wall time is not mentioned: it would read "0 %".
_LEAST = 0.005


def goodput_text(session: Session) -> str:
    """``81 % training, 12 % evaluation, 7 % start, of 12m03s``; empty before the first step, or without markers."""
    found = _of_trainer(session)
    return _text(found) if found is not None and found.wall_s > 0 else ""


def goodput_json(session: Session) -> dict[str, Any]:
    """The seconds by name, and the same text; empty like that."""
    found = _of_trainer(session)
    if found is None or found.wall_s <= 0:
        return {}
    return {"wall_s": found.wall_s, "seconds": found._asdict(), "text": _text(found)}


def _of_trainer(session: Session) -> Goodput | None:
    pid = session.trainer()
    return goodput(session, pid) if pid is not None else None


def _text(found: Goodput) -> str:
    training, *rest = ((_WORDS.get(name, name), seconds / found.wall_s) for name, seconds in found._asdict().items())
    named = [training, *sorted((part for part in rest if part[1] >= _LEAST), key=lambda part: -part[1])]
    return ", ".join(f"{percent(share)} {name}" for name, share in named) + f", of {duration(found.wall_s)}"
