"""The fixes that a finding proposes, as changes of the script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.random_loops.judging import PLACES_OF
from tests.random_loops.plan import Plan
from tests.random_loops.works import CAUSE
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import Place

AS_IT_IS = "as it is"
#: The part of the step that a fix makes cheaper.
_PART_OF = {"items": "data", "fetch": "data", "side_work": "side", "model": "model"}


def change_of(finding: Finding, fix: Fix, plan: Plan, script: Path) -> str | None:
    """The change's name, as ``changed`` knows it; None where the script cannot be changed that way."""
    match fix.change:
        case None:
            return None
        case ("items" | "fetch" | "side_work" | "model" as what, left):
            possible = [p.name for p in plan.pieces if p.place in PLACES_OF[_PART_OF[what]]]
            named = _piece_at(finding.where[:1], script) if finding.where else _only(possible)
            return f"{named}*{left:g}" if named in possible else None
        case (what, to):
            return f"{what}*{to:g}"


def _only(pieces: list[str]) -> str | None:
    """The one piece that matters."""
    large = [name for name in pieces if name != "tiny"]
    return large[0] if len(large) == 1 else None


def _piece_at(places: Sequence[Place], script: Path) -> str | None:
    """The piece of work whose function one of these lines is in."""
    lines = script.read_text().splitlines()
    for place in places:
        if place.file.endswith(script.name) and CAUSE in lines[place.line - 1]:
            return lines[place.line - 1].rpartition(CAUSE)[2]
    return None


def changed(plan: Plan, change: str) -> Plan | None:
    """The plan with a change; None where it has nothing to change."""
    if change == AS_IT_IS:
        return plan
    what, _, to = change.rpartition("*")
    match what:
        case "workers":
            return replace(plan, workers=int(to))
        case "persistent":
            return replace(plan, persistent=True)
        case "evaluation":
            return replace(plan, evaluate_every=round(plan.evaluate_every / float(to)) if float(to) else 0)
        case "threads":
            return replace(plan, threads=int(to))
        case _:
            return _with_piece(plan, what, float(to))


def _with_piece(plan: Plan, name: str, left: float) -> Plan | None:
    piece = next((piece for piece in plan.pieces if piece.name == name), None)
    if piece is None or (left and piece.amount * left < 1):
        return None
    less = replace(piece, amount=round(piece.amount * left))
    return replace(plan, pieces=tuple(less if each is piece else each for each in plan.pieces))
