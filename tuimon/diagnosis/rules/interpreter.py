"""Python itself: in the model, the GIL, which another thread holds, the garbage collector, and torch.compile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tuimon.code_origin import is_agent_file, is_package_file
from tuimon.diagnosis.cells import Cell, loop_cells, step_cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import is_collecting
from tuimon.diagnosis.evidence.process import Contention
from tuimon.diagnosis.finding import Finding, Fix, new_finding
from tuimon.diagnosis.knowledge import BY_LIBRARY, POLLING, THREADS
from tuimon.diagnosis.known import figures, known_work_at, known_work_of
from tuimon.diagnosis.line_text import KnownWork, at_hot, in_library, thread_text
from tuimon.diagnosis.rule import UNSURE, is_sure
from tuimon.diagnosis.rules.compute import without_settings
from tuimon.diagnosis.step_model import without
from tuimon.interval import Interval
from tuimon.native_code import CodeKind
from tuimon.records import MODEL, CompilerEvents, Place
from tuimon.session.stacks.samples import NO_SAMPLES, HotLine, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.text import code_place, ms_text, percent
from tuimon.threshold import MIN_SAMPLES, MOST, NEARLY_ALL, REPORTED, TINY

_MOVE, _RELEASING = "move that work to a process", "code that releases the GIL (NumPy, torch, C)"


def gil_contention(evidence: Evidence) -> Finding | None:
    """Other threads of the training process hold the GIL while the training thread could run.

    Without the work of those threads a step takes 1 - share of its time.
    """
    found, waits = evidence.contention, loop_cells(evidence).where(via="gil")
    lost, queued = waits.share, waits.where(via="batch").share
    if found is None or evidence.gpu.is_used is not False or lost - queued < REPORTED:
        return None  # or the training thread mainly waits at its queue: see input_bound
    place, culprit = found.place, found.culprit
    known = known_work_of(culprit, place, evidence.others.get(culprit.tid, NO_SAMPLES))
    beside = f" {percent(queued)} of the time for its batches and" if queued else ""
    return new_finding(
        f"the training thread waits{beside} about {percent(lost - queued)} of the time for the GIL, held by"
        f" {thread_text(culprit)}{in_library(None, known)}",
        *_fixes(evidence, found, lost, queued, known),
        share=lost,
        at=place,
        evidence={
            "others_hold_gil": found.others_hold,
            "training_holds_gil": found.training_holds,
            "unexplained": found.unexplained,
            "queue_wait_share": queued or None,
            **figures(culprit.native),
        },
    )


def _fixes(
    evidence: Evidence, found: Contention, lost: float, queued: float, known: KnownWork | None
) -> tuple[Fix, ...]:
    """The fixes: without that work; or with the work in a process, which may then set the pace.

    Worked example: the training thread waits 70 % of the time for a thread that makes its batches and is on a core for
    80 % of the time. Without that work a step takes 30 % of its time; with the work in a process, 80 %.
    """
    first = f"{known.action}; or " if known is not None else ""
    if not found.feeds:  # no batch waits for it
        first = first.replace(BY_LIBRARY["python"], f"do it less often, or {BY_LIBRARY['python']}")
    waits = Interval.around(lost, min(float(UNSURE), (lost - queued) / 2))
    fix = partial(without, evidence, "gil", share=waits, claimed=Interval.around(lost))
    # it makes nothing that could be made elsewhere
    if known is not None and (known.what == POLLING or known.action in THREADS.values()):
        return (fix(known.action),)
    making = found.culprit.cpu_ratio if found.culprit.cpu_ratio is not None else found.others_hold
    if not (queued or found.feeds) or making <= 1.0 - lost:
        return (fix(f"{first}{_MOVE}, or to {_RELEASING}"),)
    fewer = fix(f"{first}make that work cheaper, or move it to {_RELEASING}")
    moved = fix(f"{_MOVE}, which then sets the pace", to=1.0 - (1.0 - making) / lost)
    return (fewer, moved) if moved.estimated_speedup else (fewer,)


# -- Python's garbage collector


def gc_pauses(evidence: Evidence) -> Finding | None:
    """Python's garbage collector stops the training, on any thread; collections of the compiler's garbage do not count.

    If markers do not report how long collections take, samples show those that the loop calls itself.
    """
    totals, every = evidence.totals, ""
    figures = dict.fromkeys(("pauses", "longest_ms", "gc_ms_per_step"), None)
    share = sum(cell.share for cell in loop_cells(evidence).where(doing={"gc"}) if not cell.via)
    pauses, collecting = int(totals.sums.gc_count), evidence.collecting
    if pauses and totals.steps and collecting:
        every_s, longest_ms = totals.sums.gc_span_s / pauses, totals.sums.gc_longest_ns / 1e6
        pace = f"{every_s:.2g} s" if every_s >= 1 else f"{1e3 * every_s:.0f} ms"
        every = f": every {pace}, for up to {ms_text(longest_ms)}"
        step_ms = 1e3 * totals.sums.span_s / totals.steps
        figures = {"pauses": pauses, "longest_ms": longest_ms, "gc_ms_per_step": collecting * step_ms}
    if not is_sure(evidence, share, TINY if pauses else REPORTED):
        return None
    call = collecting_line(evidence.samples)
    if call is None:
        action = (
            "call gc.freeze() after the set-up, or gc.disable() with a gc.collect() between epochs, and keep large data"
            " in arrays: the collector then scans less"
        )
    elif call.library is None:
        action = f"remove gc.collect() ({code_place(call.place)}), or call it once per epoch"
    else:
        action = f"call {at_hot(call)} less often, or not at all"
    return new_finding(
        f"garbage collection stops the training {percent(share)} of the time{every}{in_library(call)}",
        without(evidence, "collections", action, Interval.around(share)),
        share=share,
        at=call,
        evidence={"gc_share": share, **figures},
    )


def collecting_line(samples: Samples) -> HotLine | None:
    """The line with most samples in ``gc.collect()``: the user's, with the library's that it leads to; else None."""
    counts: Counter[tuple[Place, Place | None]] = Counter()
    for row in samples.where(is_collecting).rows:
        leaf, own = row.node.frame, row.node.place
        line = Place(leaf.file, leaf.line, leaf.function, leaf.source)
        counts[(own, None if leaf.user else line) if own is not None else (line, None)] += row.count
    if not counts:
        return None
    (place, library), count = counts.most_common(1)[0]
    return HotLine(place, count / samples.total, count, library)


class Guard(NamedTuple):
    """A guard of torch.compile; ``differs``: the difference that failed it, as the end of "recompiles, as ..."."""

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
        "{x} has a different value", "pass {x} as a tensor: torch.tensor({x})"
    ),
}
_LOCAL = re.compile(r"L\[['\"](\w+)['\"]\]")
_ANY = Guard(
    "something differs from what was compiled",
    "keep the shapes and numbers that reach the compiled model constant: pad to a few lengths, pass numbers as"
    " tensors, or"
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
    share = sum(cell.share for cell in step_cells(evidence) if compiles(cell))
    if not is_sure(evidence, share):
        return _uncompiled(evidence)
    # the first compilation is not counted
    later = evidence.of_run.samples.in_steps
    if not is_sure(evidence, later.share(below="compile") or 0.0):
        return _uncompiled(evidence)
    hot = evidence.samples.in_steps.where(below="compile").hottest()
    again = evidence.compiler_events("recompiled")
    guard = guard_of(again[0].reason if again else "")
    why = f": {guard.differs}" if again and again[0].reason else ""
    count, window_s = sum(event.count for event in again), evidence.phases.window_s
    return new_finding(
        f"{percent(share)} of each step recompiles {_name(again)}{why}",
        without(evidence, "compiling", guard.fix, Interval.around(share)),
        share=share,
        at=hot,
        compiling_share=share,
        step_ms=evidence.phases.mean_ms,
        recompiles_per_minute=60.0 * count / window_s if count and window_s else None,
        recompile_ms=sum(event.total_ns for event in again) / count / 1e6 if count else None,
        failed_guard=again[0].reason if again else None,
        guarded_at=again[0].guarded or None if again else None,
    )


def compiles(cell: Cell) -> bool:
    """True for the compiler's time, including its waits for a core, and the collection of its garbage."""
    return cell.doing == "compile" or "compile" in cell.via


def _uncompiled(evidence: Evidence) -> Finding | None:
    """Code that runs uncompiled: a function with too many compiled versions, or the code between pieces of a model."""
    given_up = evidence.of_run.compiler_events("limit")
    breaks = evidence.of_run.compiler_events("graph_break")
    if given_up:
        first = given_up[0]
        return new_finding(
            f"torch.compile gave up on {_name(given_up)}: new inputs run uncompiled",
            guard_of(first.reason).fix,
            severity="info",
            cause="gave_up",
            at=Place(first.file, first.line, first.function),
            failed_guard=first.reason,
        )
    if not breaks:
        return None
    places = tuple(dict.fromkeys(Place(each.file, each.line, each.function) for each in breaks))
    return new_finding(
        f"torch.compile breaks the graph: {breaks[0].reason}",
        "if the pieces between the breaks are small, move what it cannot trace out of the function",
        severity="info",
        cause="graph_breaks",
        at=places[:3],
        graph_breaks=sum(each.count for each in breaks),
    )


def _name(events: Sequence[CompilerEvents]) -> str:
    return f"{events[0].function}()" if events and events[0].function.isidentifier() else "the model"


# -- Python in the model

#: Packages that compute on a CPU for the code that calls them.
_NUMERIC = re.compile(r"/(?:numpy|scipy|pandas|sklearn|skimage|PIL|cv2|numba)/")
#: Kinds of code in forward and backward that run no faster on a GPU.
_NOT_OF_MODEL: tuple[CodeKind, ...] = ("python", "arrays", "codec", "compression", "parser")
#: Activities in which a line's text decides, provided that nothing waits for a GPU: ``int(x.item())`` is Python too.
_AT_WORK = ("python", "sync")
#: A call that makes a tensor out of Python's numbers, one by one.
_FROM_PYTHON = re.compile(r"\btorch\.(?:tensor|as_tensor|\w*Tensor)\(")


def python_in_model(evidence: Evidence) -> Finding | None:
    """A finding about a Python function that takes much of forward and backward, which no faster device shortens.

    An operation of torch on the user's line looks the same but releases the GIL. So a function counts only if it holds
    the GIL, or if its lines call only other packages.
    """
    samples = evidence.samples.where(phase=MODEL).without_bare_module_calls
    hot = without_settings(samples, evidence).hottest(runs_python)
    if hot is None or samples.total < MIN_SAMPLES:
        return None
    rows, own = [row for row in evidence.phases.rows if row.name in MODEL], hot.place.code
    running = samples.where(lambda node: node.function == own and runs_python(node))
    # the measured length of a phase is more exact than the samples' share
    share = sum(row.share * running.phases[row.name] / max(1, samples.phases[row.name]) for row in rows)
    if not is_sure(evidence, share):
        return None
    held, native = evidence.gil_held_in(hot.place), evidence.native_in(*MODEL)
    if native:
        holds = (native.share(*_NOT_OF_MODEL) or 0.0) * sum(row.share for row in rows) >= MOST * share
    else:
        holds = held is not None and held >= MOST * share * evidence.phases.part_of_time
        # an operation of torch has no frame of its own, so its line looks like Python
        holds = holds or running.part(lambda node: not node.frame.user or _makes_tensor(node)) >= NEARLY_ALL
    if not holds:
        return None
    python = native.share("python")
    measured = f"; the interpreter has {percent(python)} of the CPU time of both passes" if python is not None else ""
    vectorise = f"vectorise {at_hot(hot)} (whole tensors instead of a loop), compile it or cache its result"
    if (known := known_work_at(hot.place, running)) is not None:
        vectorise = f"make {at_hot(hot)} cheaper ({known.action})"
    return new_finding(
        f"{percent(share)} of each step is Python code in the model{in_library(hot, known)}{measured}",
        # each operation that forward leaves out saves one in backward, where samples do not show it
        without(evidence, "model", f"{vectorise}: no GPU makes it faster", Interval.around(share)).with_open_gain,
        cause="python",
        share=share,
        at=hot,
        evidence={
            "step_ms": evidence.phases.mean_ms,
            "gil_ratio": held,
            "python_share": python,
            "hot_share": share / sum(row.share for row in rows),
            **{f"{row.name}_share": row.share for row in rows},
        },
    )


def runs_python(node: StackNode) -> bool:
    """True if the user's code is at work, itself or in a package that computes for it; a library's does not count."""
    if node.activity not in _AT_WORK and not _makes_tensor(node):
        return False
    files = [frame.file for frame in node.called]
    others = (is_agent_file(file) or (is_package_file(file) and not _NUMERIC.search(file)) for file in files)
    return node.user_line is not None and not any(others)


def _makes_tensor(node: StackNode) -> bool:
    return node.frame.user and _FROM_PYTHON.search(node.frame.text) is not None
