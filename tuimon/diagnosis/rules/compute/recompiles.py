"""The rule about torch.compile where it compiles again and again, has given a function up, or makes pieces of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import SAMPLES, STEPS, Rule
from tuimon.diagnosis.step_model.measured import without
from tuimon.diagnosis.threshold import MIN_SAMPLES, REPORTED
from tuimon.diagnosis.words import percent
from tuimon.records import CompilerEvents, Place
from tuimon.text import code_place

#: Graph breaks that are named.
_PLACES = 3


class Guard(NamedTuple):
    """What a guard of torch.compile looks at: ``differs``: the end of "recompiles, as ..."."""

    differs: str
    fix: str


_DYNAMIC = Guard(
    "dimension {d} of {x} differs",
    "let it be dynamic: torch.compile without dynamic=False, or torch._dynamo.mark_dynamic({x}, {d}) before the call;"
    " or pad to a few lengths",
)
#: The first that matches holds. Texts: torch/csrc/dynamo/guards.cpp and torch/_dynamo/guards.py of torch 2.2 to 2.13.
_GUARDS: dict[str, Guard] = {
    r"tensor '(?P<x>[^']+(?:'[^']*'[^']*)*)' size mismatch at index (?P<d>\d+)": _DYNAMIC,
    r"(?P<x>[\w.\[\]'\"]+)\.size\(\)\[(?P<d>\d+)\]": _DYNAMIC,
    r"tensor '(?P<x>.+)' rank mismatch": Guard(
        "the number of dimensions of {x} differs", "give {x} as many dimensions each time"
    ),
    r"tensor '(?P<x>.+)' (?P<d>dtype|device|stride|requires_grad|dispatch key set) mismatch": Guard(
        "the {d} of {x} differs", "give {x} with the same {d} each time"
    ),
    r"grad_mode|GLOBAL_STATE|autocast": Guard(
        "gradients or autocast are on in one call and off in another",
        "call it in one mode: a version for training and one for evaluation is usual, more are not",
    ),
    r"BACKEND_MATCH|different backend": Guard(
        "torch.compile is called with another backend", "call torch.compile once, and keep what it returns"
    ),
    r"got deallocated|invalidated because": Guard(
        "the compiled object was replaced",
        "compile once and keep the object, instead of making and compiling one after the other",
    ),
    r"len\((?P<x>[^()]+)\)": Guard("the length of {x} differs", "give {x} the same length each time, or as one tensor"),
    r"___check_(?:obj|type)_id\((?P<x>[^,()]+)": Guard(
        "{x} is another object", "make {x} once and pass the same object each time"
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
    """The training thread compiles its model after the first steps, too: it does so for each new input."""
    # what the compiler waits for a core, and the garbage that it makes, go with it
    share = evidence.samples.in_steps.share(below="compile") or 0.0
    if not is_sure(evidence, share) or not is_sure(
        evidence, evidence.threads.samples_since(evidence.steps.first_step_s).in_steps.share(below="compile") or 0.0
    ):
        return _uncompiled(evidence)
    hot = evidence.samples.in_steps.where(below="compile").hottest()
    again = evidence.compiler_events("recompiled")
    guard = guard_of(again[0].reason if again else "")
    why = f": {guard.differs}" if again and again[0].reason else ""
    figures: dict[str, float | int | str | None] = {"compiling_share": share, "step_ms": evidence.steps.mean_ms}
    count, table = sum(event.count for event in again), evidence.steps.phases
    window_s = table.window_s if table is not None else 0.0
    if count and window_s:
        figures |= {
            "recompiles_per_minute": 60.0 * count / window_s,
            "recompile_ms": sum(event.total_ns for event in again) / count / 1e6,
            "recompiled": f"{again[0].function}() {code_place(again[0].file, again[0].line)}",
            **_guarded(again[0]),
        }
    return Finding(
        headline=f"{percent(share)} of each step compiles {_name(again)} anew{why}",
        fixes=(without(evidence, "compiling", guard.fix, Interval.around(share)),),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence=figures,
    )


def _uncompiled(evidence: Evidence) -> Finding | None:
    """What runs uncompiled: a function of which torch makes no more versions, or the code between pieces of a model."""
    given_up = evidence.compiler_events("limit", of_run=True)
    breaks = evidence.compiler_events("graph_break", of_run=True)
    if given_up and given_up[0].function:
        first = given_up[0]
        made = evidence.compiler_events("compiled", "recompiled", of_run=True)
        versions = sum(event.count for event in made if (event.file, event.line) == (first.file, first.line))
        after = f" after {versions} versions" if versions > 1 else ""
        return Finding(
            severity="info",
            cause="gave_up",
            headline=f"torch.compile gave up on {_name(given_up)}{after}: new inputs run uncompiled",
            fixes=(Fix(guard_of(first.reason).fix),),
            where=(Place(first.file, first.line, first.function),),
            evidence=_guarded(first),
        )
    if not breaks:
        return None
    places = tuple(dict.fromkeys(Place(each.file, each.line, each.function) for each in breaks))
    lines = f"at {len(places)} lines" if len(places) > 1 else "at one line"
    return Finding(
        severity="info",
        cause="graph_breaks",
        headline=f"torch.compile breaks the graph off {lines}: {breaks[0].reason}",
        fixes=(Fix("move what it cannot trace out of the compiled function, if its pieces are small"),),
        where=places[:_PLACES],
        evidence={"graph_breaks": sum(each.count for each in breaks)},
    )


def _name(events: Sequence[CompilerEvents]) -> str:
    return f"{events[0].function}()" if events and events[0].function.isidentifier() else "the model"


def _guarded(event: CompilerEvents) -> dict[str, float | int | str | None]:
    """The guard that failed in most of them, where Dynamo notes it."""
    file, _, line = event.guarded.rpartition(":")
    return {
        "failed_guard": event.reason or None,
        "guard_at": code_place(file, int(line)) if file and line.isdecimal() else None,
    }


RECOMPILES = Rule(
    title="Costs of torch.compile",
    judge=recompiles,
    explanation=(
        "torch.compile compiles the model anew while it trains: for each new shape, or each new value of a Python"
        " number that it has taken for a constant. It rests on samples of the training thread inside the compiler; the"
        " first compilation does not count. Dynamo's own notes, where they can be read, name the guard that failed."
        " With the cause gave_up, torch compiles a function no more, as it has too many versions; with graph_breaks, it"
        " compiles the model in pieces, which costs little if they are large."
    ),
    needs=(STEPS, SAMPLES),
    thresholds=(REPORTED, MIN_SAMPLES, *CONFIDENCE),
    causes=("gave_up", "graph_breaks"),
    contradicts_order=True,
    takes=lambda cell, finding: not finding.cause and (cell.doing == "compile" or "compile" in cell.via),
)
