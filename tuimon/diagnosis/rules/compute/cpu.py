"""The rule about a model that computes on the CPU, with or without Python code in it."""

from __future__ import annotations

import re
from typing import NamedTuple

from tuimon.code_origin import is_agent_file, is_package_file
from tuimon.diagnosis.cells import PASSES
from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import is_free, runs_nothing, whole_gpus
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import STEPS, Rule
from tuimon.diagnosis.rules.compute.settings import lower_is_faster, slow_setting, without_settings
from tuimon.diagnosis.rules.needless import needless_work, wait_in_pass
from tuimon.diagnosis.rules.owner_options import advice_on_debugging
from tuimon.diagnosis.step_model.measured import without
from tuimon.diagnosis.threshold import LARGE, MIN_SAMPLES, MOST, REPORTED, Threshold
from tuimon.diagnosis.words import at_hot, in_library, percent
from tuimon.session.phase_table import PhaseTable
from tuimon.session.stacks.loop import NEARLY_ALL
from tuimon.session.stacks.samples import HotLine
from tuimon.session.stacks.trie import Node, to_user

SMALL_PART = Threshold(
    0.15,
    "the same where a single line of it is at work, from which that calls operations that are all overhead",
    "our choice, between what torch 2.13 showed: 0.2 to 0.4 for operations of 2 to 7 µs, 0.04 to 0.13 for those"
    " of 10 µs and more; the part is above it in nine of ten cases",
)
LOOKS = Threshold(
    2,
    "looks that find the GIL held in a function that loops, from which its operations may be small",
    "our choice: operations of 0.1 ms hold it for a hundredth of their time, and hardly ever twice in fifty looks",
)
#: Packages that compute for whoever calls them, on a CPU.
_NUMERIC = re.compile(r"/(?:numpy|scipy|pandas|sklearn|skimage|PIL|cv2|numba)/")
#: Activities for which the text of a line may be taken if no GPU makes anybody wait: ``int(x.item())`` is Python too.
_AT_WORK = ("python", "sync")
#: Makes a tensor out of Python's numbers, one by one.
_FROM_PYTHON = re.compile(r"\btorch\.(?:tensor|as_tensor|\w*Tensor)\(")
#: Phases in which the model computes.
_PHASES = ("forward", "backward")


class _PythonWork(NamedTuple):
    """A function of the user's that the model calls, and what its work is."""

    hot: HotLine
    share: float  # of the step
    held_ratio: float | None  # share of all time in which it holds the GIL
    is_operations: bool  # of torch's, so small that what surrounds them takes most of their time
    in_backward: float = 0.0  # share of the step in which backward goes through them again, as in the forward pass


def python_in_model(evidence: Evidence, table: PhaseTable) -> Finding | None:
    """A finding about a Python function in forward or backward that takes a large part of the step.

    A faster device does nothing for it. Where a setting in force has a large part of its work checked or traced, that
    comes first, as what it takes is measured.
    """
    found = [work for work in (_python_work(evidence, table), _looping_work(evidence)) if work is not None]
    work = max(found, key=lambda work: work.share, default=None)
    if work is None:
        return None
    hot = work.hot
    what = "goes into tiny operations, one by one" if work.is_operations else "is Python code in the model"
    told = work.in_backward if work.in_backward >= REPORTED else 0.0  # less may be none: of what needs no gradients
    again = f", and about {percent(told)} into their backward" if told else ""
    fix = without(
        evidence,
        "model",
        f"vectorise {at_hot(hot)} (whole tensors instead of a loop), compile it or cache its result: no GPU makes it"
        " faster",
        Interval.around(work.share + told, work.in_backward),
    )
    setting = evidence.answer(slow_setting)
    is_checked = setting is not None and _is_in(hot, setting) and (setting.share_of_step or 0.0) >= LARGE * work.share
    return Finding(
        cause="python",
        severity="info" if is_checked else "warning",
        headline=f"{percent(work.share)} of each step {what}{again}{in_library(hot)}",
        fixes=(fix.by_up_to(fix.gain.high if fix.gain is not None else None) if is_checked else fix,),
        share_of_step=work.share + told,
        where=(hot.place,),
        evidence={
            "step_ms": evidence.steps.mean_ms,
            "gil_ratio": work.held_ratio,
            "hot_share": hot.share,
            **{f"{row.name}_share": row.share for row in table.rows if row.name in _PHASES},
        },
    )


def _is_in(hot: HotLine, finding: Finding) -> bool:
    """True if all places of a finding are in the function of this line."""
    functions = {(place.file, place.function) for place in finding.where}
    return functions == {(hot.place.file, hot.place.function)}


def _python_work(evidence: Evidence, table: PhaseTable) -> _PythonWork | None:
    """The function that takes most of forward and backward, where that is much of the step and Python's work.

    On a line of the user's own an operation of torch looks the same, but releases the GIL: only a function that holds
    it counts, or one whose lines call nothing but other packages. If operations are so small that what surrounds
    them takes most of their time, the GIL is held for a good part of it, too.
    """
    samples = evidence.samples.where(phase=_PHASES).whole
    hot = without_settings(samples, evidence).hottest(runs_python)
    if hot is None or samples.total < MIN_SAMPLES:
        return None
    rows = [row for row in table.rows if row.name in _PHASES]
    own = hot.function
    running = samples.where(lambda node: node.function == own and runs_python(node))
    # how long a phase takes is known better than samples show it
    share = sum(row.share * running.phases[row.name] / max(1, samples.phases[row.name]) for row in rows)
    if not is_sure(evidence, share):
        return None
    hot = hot._replace(share=share / sum(row.share for row in rows))
    of_all_time = share * evidence.steps.part_of_time
    held = evidence.threads.gil_held_in(hot.place)
    is_python = running.part(runs_no_operation) >= NEARLY_ALL or (held is not None and held.ratio >= MOST * of_all_time)
    at_line = running.part(lambda node: node.place is not None and node.place.line == hot.place.line)
    is_small = held is not None and held.surely >= SMALL_PART * of_all_time and at_line >= NEARLY_ALL
    if not (is_python or is_small):
        return None
    # what it calls is hardly ever Python then
    is_operations = not is_python and running.part(lambda node: node.frame.user) >= NEARLY_ALL
    return _PythonWork(hot, share, held.ratio if held is not None else None, is_operations)


def _looping_work(evidence: Evidence) -> _PythonWork | None:
    """The function that takes most of the forward pass with a loop of its own, where its operations are small.

    On its lines Python and operations of torch take turns. That it loops is what its text shows: so two samples that
    find the GIL held are enough to tell small operations from large ones.
    """
    main, forward = evidence.samples, evidence.steps.phase("forward")
    whole, training = main.where(phase="forward").whole, main.where(phase=("backward", "optimizer"))
    samples = without_settings(whole, evidence)
    hot = samples.hottest(lambda node: loops(node) and node.function not in training.through)
    if hot is None or forward is None or samples.total < MIN_SAMPLES:
        return None
    own = hot.function
    looped = samples.where(lambda node: node.function == own and loops(node))
    part = looped.total / samples.total
    own_share = forward.share * samples.total / whole.total
    share, held = own_share * part, evidence.threads.gil_held_in(hot.place)
    of_all_time = share * evidence.steps.part_of_time
    if not is_sure(evidence, share) or held is None or held.held < LOOKS or held.ratio < SMALL_PART * of_all_time:
        return None
    in_torch = looped.part(doing="torch")
    is_operations = in_torch > MOST or held.ratio < MOST * of_all_time
    backward, again = evidence.steps.phase("backward"), 0.0
    if backward is not None and is_operations and looped.part(keeps_no_gradients) < NEARLY_ALL:
        # the same part of backward, which leaves the rest of the model at least as long there as its forward pass took,
        # as layers do: operations on the batch, such as features of it, need no gradients
        again = max(0.0, min(backward.share * part, backward.share - own_share * (1.0 - part)))
    return _PythonWork(hot._replace(share=looped.total / whole.total), share, held.ratio, is_operations, again)


def runs_no_operation(node: Node) -> bool:
    """True if the innermost line runs no operation of torch's: such a one has no frame, and looks like Python."""
    leaf = node.frame
    return not leaf.user or _makes_tensor(node) or bool(leaf.packages)


def keeps_no_gradients(node: Node) -> bool:
    """True if a sample is in code without gradients, as far as the source shows."""
    return any(frame.no_grad is not None for frame in node.frames)


def runs_python(node: Node) -> bool:
    """True if the user's code is at work, itself or by a package that computes for it; a library's is not."""
    if node.activity not in _AT_WORK and not _makes_tensor(node):
        return False
    for frame in reversed(node.frames):
        if frame.user:
            return True
        if is_agent_file(frame.file) or (is_package_file(frame.file) and not _NUMERIC.search(frame.file)):
            return False
    return False


def loops(node: Node) -> bool:
    """True if the innermost line of the user's is in a loop of its function, and runs no module.

    What the loop calls of libraries counts, such as a distribution's ``log_prob``.
    """
    own = to_user(node.frames)
    return bool(own) and own[-1].loop and all(kind == "none" for kind in node.kinds[len(own) :])


def _makes_tensor(node: Node) -> bool:
    return node.frame.user and _FROM_PYTHON.search(node.frame.source) is not None


def compute_bound_cpu(evidence: Evidence) -> Finding | None:
    """The model computes on the CPU, and that is what takes the time: nothing is wrong with the loop.

    But for Python code that the model runs, which no device makes faster. A wait is no computation: the training thread
    has to run, or to wait for a core.
    """
    table = evidence.steps.phases
    if table is None or evidence.gpu.is_used is not False:
        return None
    if (found := python_in_model(evidence, table)) is not None:
        return found
    rows = [row for row in table.rows if row.name in (*_PHASES, "optimizer")]
    compute = {row.name: row.share for row in rows}
    share = sum(compute.values())
    unsure = max((row.error for row in rows if row.error is not None), default=0.0)
    thread, used = evidence.threads.training, evidence.threads.figures.cpu_ratio if evidence.threads.figures else None
    runs = used if used is not None else 1.0  # of the process, where the kernel does not report waits for a core
    if thread.cpu_ratio is not None and thread.delay_ratio is not None:
        runs = thread.cpu_ratio + thread.delay_ratio
    if not is_sure(evidence, min(share, runs), MOST, unsure, early=False):
        return None
    heaviest, cores = max(compute, key=compute.__getitem__), evidence.run.here.cores
    hot, needless = evidence.hottest_in(heaviest), list(needless_work(evidence))
    on = f" ({used:.1f} of {cores} cores)" if used is not None and cores is not None else ""
    computes = f"the model computes on the CPU for {percent(share)} of each step{on}, mostly {heaviest}"
    in_order = not needless and wait_in_pass(evidence) is None
    action = advice_on_debugging("compute_bound_cpu", evidence) or _faster(evidence, in_order=in_order)
    return Finding(
        severity="info",
        headline="; ".join((computes, *(work.what for work in needless))),
        fixes=(*(Fix(work.action) for work in needless), Fix(action)),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "cpu_ratio": used,
            "step_ms": evidence.steps.mean_ms,
            **{f"{name}_share": part for name, part in compute.items()},
        },
    )


def _faster(evidence: Evidence, *, in_order: bool) -> str:
    gpus = whole_gpus(evidence.run.gpus)
    idle = next((row.latest for row in gpus if is_free(row) or (row.used_by_run and runs_nothing(row))), None)
    if idle is not None:
        return (
            f"move the model and each batch to GPU {idle.index} (.to('cuda')): this machine's {idle.name} is not used;"
            " torch must be a build with CUDA"
        )
    lower = " or a smaller model"
    if lower_is_faster(evidence):
        lower = ", a smaller model or torch.autocast('cpu', torch.bfloat16)"
    return f"use a GPU{lower}{': the loop is in order' if in_order else ''}"


COMPUTE_BOUND_CPU = Rule(
    title="Computes on the CPU",
    judge=compute_bound_cpu,
    explanation=(
        "The model computes on the CPU, and that takes most of the step: the loop is in order, unless its batches hold"
        " much padding, backward runs several times for each, or it waits in a pass. It rests on the shares of forward,"
        " backward and optimizer while no GPU is used, and abstains if that is unknown, or if the training thread"
        " mostly waits for something other than a core. If samples find one function of the user's in much of forward"
        " and backward, and it holds the GIL meanwhile, that is Python, which no GPU makes faster: it is named, with"
        " its cost."
    ),
    needs=(STEPS,),
    thresholds=(MOST, REPORTED, LARGE, SMALL_PART, LOOKS, *CONFIDENCE),
    only_in_order=True,
    causes=("python",),
    takes=lambda cell, finding: (
        not finding.cause and cell.phase in PASSES and cell.doing in ("own", "torch") and not cell.via
    ),
)
