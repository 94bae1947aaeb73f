"""The rule about a model that computes on the CPU, with or without Python code in it."""

from __future__ import annotations

import re

from tuimon.code_origin import is_agent_file, is_package_file
from tuimon.diagnosis.cells import PASSES
from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import is_free, runs_nothing, whole_gpus
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import STEPS, Rule
from tuimon.diagnosis.rules.compute.settings import lower_is_faster, without_settings
from tuimon.diagnosis.rules.needless import needless_work, wait_in_pass
from tuimon.diagnosis.rules.owner_options import advice_on_debugging
from tuimon.diagnosis.step_model.measured import without
from tuimon.diagnosis.threshold import MIN_SAMPLES, MOST, REPORTED
from tuimon.diagnosis.words import at_hot, in_library, percent
from tuimon.session.phase_table import PhaseTable
from tuimon.session.stacks.loop import NEARLY_ALL
from tuimon.session.stacks.trie import Node

#: Packages that compute for whoever calls them, on a CPU.
_NUMERIC = re.compile(r"/(?:numpy|scipy|pandas|sklearn|skimage|PIL|cv2|numba)/")
#: Activities for which the text of a line may be taken if no GPU makes anybody wait: ``int(x.item())`` is Python too.
_AT_WORK = ("python", "sync")
#: Makes a tensor out of Python's numbers, one by one.
_FROM_PYTHON = re.compile(r"\btorch\.(?:tensor|as_tensor|\w*Tensor)\(")
#: Phases in which the model computes.
_PHASES = ("forward", "backward")


def python_in_model(evidence: Evidence, table: PhaseTable) -> Finding | None:
    """A finding about a Python function that takes much of forward and backward: a faster device does nothing for it.

    On a line of the user's own an operation of torch looks the same, but releases the GIL: only a function that holds
    it counts, or one whose lines call nothing but other packages.
    """
    samples = evidence.samples.where(phase=_PHASES).whole
    hot = without_settings(samples, evidence).hottest(runs_python)
    if hot is None or samples.total < MIN_SAMPLES:
        return None
    rows, own = [row for row in table.rows if row.name in _PHASES], hot.function
    running = samples.where(lambda node: node.function == own and runs_python(node))
    # how long a phase takes is known better than samples show it
    share = sum(row.share * running.phases[row.name] / max(1, samples.phases[row.name]) for row in rows)
    if not is_sure(evidence, share):
        return None
    held = evidence.threads.gil_held_in(hot.place)
    holds = held is not None and held.ratio >= MOST * share * evidence.steps.part_of_time
    if not holds and running.part(runs_no_operation) < NEARLY_ALL:
        return None
    vectorise = f"vectorise {at_hot(hot)} (whole tensors instead of a loop), compile it or cache its result"
    return Finding(
        cause="python",
        headline=f"{percent(share)} of each step is Python code in the model{in_library(hot)}",
        fixes=(without(evidence, "model", f"{vectorise}: no GPU makes it faster", Interval.around(share)),),
        share_of_step=share,
        where=(hot.place,),
        evidence={
            "step_ms": evidence.steps.mean_ms,
            "gil_ratio": held.ratio if held is not None else None,
            "hot_share": share / sum(row.share for row in rows),
            **{f"{row.name}_share": row.share for row in rows},
        },
    )


def runs_no_operation(node: Node) -> bool:
    """True if the innermost line runs no operation of torch's: such a one has no frame, and looks like Python."""
    leaf = node.frame
    return not leaf.user or _makes_tensor(node) or bool(leaf.packages)


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
    needs=(STEPS,),
    thresholds=(MOST, REPORTED, *CONFIDENCE),
    only_in_order=True,
    causes=("python",),
    takes=lambda cell, finding: (
        not finding.cause and cell.phase in PASSES and cell.doing in ("own", "torch") and not cell.via
    ),
)
