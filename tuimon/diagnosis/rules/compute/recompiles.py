"""The rule about torch.compile compiling again and again, giving a function up, or breaking the model into pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.cells import Cell, of_step
from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import SAMPLES, STEPS, Rule
from tuimon.diagnosis.step_model.measured import without
from tuimon.diagnosis.threshold import MIN_SAMPLES, REPORTED
from tuimon.diagnosis.words import percent
from tuimon.records import CompilerEvents, Place

#: Most graph breaks that are named.
_PLACES = 3


class Guard(NamedTuple):
    """A guard of torch.compile; ``differs``: what failed it, as the end of "recompiles, as ..."."""

    differs: str
    fix: str


_DYNAMIC = Guard(
    "dimension {d} of {x} differs",
    "let it be dynamic: torch.compile without dynamic=False, or torch._dynamo.mark_dynamic({x}, {d}) before the call;"
    " or pad to a few lengths",
)
#: The first match counts. Texts: torch/csrc/dynamo/guards.cpp and torch/_dynamo/guards.py of torch 2.2 to 2.13.
_GUARDS: dict[str, Guard] = {
    r"tensor '(?P<x>[^']+(?:'[^']*'[^']*)*)' size mismatch at index (?P<d>\d+)": _DYNAMIC,
    r"(?P<x>[\w.\[\]'\"]+)\.size\(\)\[(?P<d>\d+)\]": _DYNAMIC,
    r"tensor '(?P<x>.+)' (?P<d>rank|dtype|device|stride|requires_grad|dispatch key set) mismatch": Guard(
        "the {d} of {x} differs", "give {x} with the same {d} each time"
    ),
    r"grad_mode|GLOBAL_STATE|autocast": Guard(
        "gradients or autocast are on in one call and off in another",
        "call it in one mode: a version for training and one for evaluation is usual, more are not",
    ),
    r"(?P<x>[A-Za-z_][\w.\[\]'\"]*) (?:==|is|!=|<=?|>=?) ": Guard(
        "{x} has another value", "pass {x} as a tensor: torch.tensor({x})"
    ),
}
_LOCAL = re.compile(r"L\[['\"](\w+)['\"]\]")
_ANY = Guard(
    "something differs from what was compiled",
    "keep the shapes and numbers that reach the compiled model alike: pad to few lengths, pass numbers as tensors, or"
    " compile with dynamic=True; TORCH_LOGS=recompiles names what differs",
)


def guard_of(reason: str) -> Guard:
    """The subject of a guard: ``tensor 'x' size mismatch at index 1`` -> dimension 1 of x differs."""
    text = _LOCAL.sub(r"\1", reason)
    for pattern, guard in _GUARDS.items():
        found = re.search(pattern, text)
        if found is not None:
            names = found.groupdict()
            return Guard(guard.differs.format(**names), guard.fix.format(**names))
    return _ANY


def recompiles(evidence: Evidence) -> Finding | None:
    """The training thread still compiles its model after the first steps, because it does so for each new input."""
    share = sum(cell.cpu for cell in of_step(evidence) if _compiles(cell))
    if not is_sure(evidence, share):
        return _uncompiled(evidence)
    later = evidence.threads.samples_since(evidence.steps.first_step_s).in_steps  # the first compilation is not counted
    if not is_sure(evidence, later.share(below="compile") or 0.0):
        return _uncompiled(evidence)
    hot = evidence.samples.in_steps.where(below="compile").hottest()
    again = evidence.compiler_events("recompiled")
    guard = guard_of(again[0].reason if again else "")
    why = f": {guard.differs}" if again and again[0].reason else ""
    count, table = sum(event.count for event in again), evidence.steps.phases
    window_s = table.window_s if table is not None else 0.0
    return Finding(
        headline=f"{percent(share)} of each step compiles {_name(again)} anew{why}",
        fixes=(without(evidence, "compiling", guard.fix, Interval.around(share)),),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "compiling_share": share,
            "step_ms": evidence.steps.mean_ms,
            "recompiles_per_minute": 60.0 * count / window_s if count and window_s else None,
            "recompile_ms": sum(event.total_ns for event in again) / count / 1e6 if count else None,
            "failed_guard": again[0].reason if again else None,
            "guarded_at": again[0].guarded or None if again else None,
        },
    )


def _compiles(cell: Cell) -> bool:
    """True for the compiler's time, including its waits for a core, and the collection of its garbage."""
    return cell.doing == "compile" or "compile" in cell.via


def _uncompiled(evidence: Evidence) -> Finding | None:
    """What runs uncompiled: a function with too many compiled versions, or the code between pieces of a model."""
    given_up = evidence.compiler_events("limit", of_run=True)
    breaks = evidence.compiler_events("graph_break", of_run=True)
    if given_up:
        first = given_up[0]
        return Finding(
            severity="info",
            cause="gave_up",
            headline=f"torch.compile gave up on {_name(given_up)}: new inputs run uncompiled",
            fixes=(Fix(guard_of(first.reason).fix),),
            where=(Place(first.file, first.line, first.function),),
            evidence={"failed_guard": first.reason},
        )
    if not breaks:
        return None
    places = tuple(dict.fromkeys(Place(each.file, each.line, each.function) for each in breaks))
    return Finding(
        severity="info",
        cause="graph_breaks",
        headline=f"torch.compile breaks the graph off: {breaks[0].reason}",
        fixes=(Fix("move what it cannot trace out of the compiled function, if its pieces are small"),),
        where=places[:_PLACES],
        evidence={"graph_breaks": sum(each.count for each in breaks)},
    )


def _name(events: Sequence[CompilerEvents]) -> str:
    return f"{events[0].function}()" if events and events[0].function.isidentifier() else "the model"


RECOMPILES = Rule(
    title="Costs of torch.compile",
    judge=recompiles,
    needs=(STEPS, SAMPLES),
    thresholds=(REPORTED, MIN_SAMPLES, *CONFIDENCE),
    causes=("gave_up", "graph_breaks"),
    contradicts_order=True,
    takes=lambda cell, finding: not finding.cause and _compiles(cell),
)
