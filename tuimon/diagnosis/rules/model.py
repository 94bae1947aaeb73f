"""The rule about a model that computes on the CPU, and work that no model needs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tuimon.diagnosis.cells import step_cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import is_free, runs_nothing, whole_gpus
from tuimon.diagnosis.evidence.lines import (
    decomposes,
    in_inner_loop,
    lines_that_run,
)
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD
from tuimon.diagnosis.finding import WARNING_GAIN, Finding, Fix, leading, new_finding
from tuimon.diagnosis.knowledge import DIFFERENTIATED, PROPAGATED
from tuimon.diagnosis.known import figures, known_work_in
from tuimon.diagnosis.line_text import times_a_step
from tuimon.diagnosis.rule import Unclaimed, is_sure
from tuimon.diagnosis.rules.advice import advice_on_debugging, advice_on_warnings
from tuimon.diagnosis.rules.compute import lower_is_faster
from tuimon.diagnosis.rules.faults import faults_in, has_same_input
from tuimon.diagnosis.rules.interpreter import python_in_model
from tuimon.diagnosis.rules.side_work import wait_in_pass
from tuimon.diagnosis.step_model import HALF, without, without_cost
from tuimon.interval import Interval
from tuimon.native_code import ALLOCATOR, NativeUse
from tuimon.records import MODEL, PASSES
from tuimon.session.series import sampling_error
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.text import at, function_text, percent, plain
from tuimon.threshold import LARGE, LARGER, MIN_SAMPLES, MOST, NEARLY_ALL, REPORTED, TINY

#: Functions that only call others: their time belongs to the functions that they call.
_LEADS = re.compile(r"_call_impl|_engine_run_backward|tuimon_\w+|wrapper|step")


def _runs(evidence: Evidence) -> float:
    """The part of the time in which the training thread runs or waits for a core: it computes only then."""
    thread, used = evidence.training, evidence.cpu_ratio
    if thread.cpu_ratio is not None and thread.delay_ratio is not None:
        return thread.cpu_ratio + thread.delay_ratio
    return used if used is not None else 1.0  # the process's, if the kernel does not report waits for a core


def on_the_cpu(unclaimed: Unclaimed) -> Finding | None:
    """For most of the step the model computes on the CPU, or waits for a core; other waits do not count."""
    evidence = unclaimed.evidence
    if evidence.gpu.is_used is not False:
        return None
    compute = unclaimed.computes
    share = sum(compute.values())
    most = share + unclaimed.cells.where(phase=PASSES, via="core").share
    unsure = max((row.error or 0.0 for row in evidence.phases.rows if row.name in PASSES), default=0.0)
    if not is_sure(evidence, min(most, _runs(evidence)), MOST, unsure, early=False):
        return None
    heaviest, cores = max(compute, key=compute.__getitem__), evidence.machine.cores
    used, hot = evidence.cpu_ratio, evidence.hottest_in(heaviest)
    on = f" ({used:.1f} of {cores} cores)" if used is not None and cores is not None else ""
    faults = faults_in(unclaimed)
    if unclaimed.holds_up and not faults:
        return None
    warned = (action for action, rules, _ in advice_on_warnings(evidence) if "compute_bound_cpu" in rules)
    mends = [advice_on_debugging("compute_bound_cpu", evidence), *(each.remedy for each in faults), *warned]
    mends.append(_how_to_use_gpu(evidence))
    fixes = [action for action in mends if action is not None]
    if not fixes:
        gains = [
            (each.best.least, each.estimated_speedup or 1.0) for each in unclaimed.found if each.severity != "benign"
        ]
        gain_little = all(least is not None and likely < WARNING_GAIN for least, likely in gains)
        fixes = ["leave the model as it is: it spends its time computing"]
        if not faults and gain_little and wait_in_pass(unclaimed) is None:
            fixes = ["leave the loop as it is: nothing holds it back, and the model spends its time computing"]
    lower = ", a smaller model or torch.autocast('cpu', torch.bfloat16)" if lower_is_faster(evidence) else None
    fixes.append(f"use a GPU{lower or ' or a smaller model'}")
    return new_finding(
        "; ".join(
            (
                f"the model computes on the CPU for {percent(share)} of each step{on}, mostly"
                f" {_pass_in_words(evidence, heaviest)}",
                *(each.what for each in faults),
            )
        ),
        *fixes,
        severity="info",
        share=share,
        at=(*(each.at for each in faults), hot),
        evidence={"cpu_ratio": used, "step_ms": evidence.phases.mean_ms, **figures(evidence.native_in(*PASSES))},
    )


def _pass_in_words(evidence: Evidence, phase: str) -> str:
    """``forward, run at train.py:40 and train.py:45, 75 % of it in gru_cell() of torch/nn/modules/rnn.py``."""
    words, samples = times_a_step(phase, evidence.times_run(phase)), evidence.samples.where(phase=phase)
    if phase == "forward" and len(lines := lines_that_run(samples)) > 1:
        words += f", run at {' and '.join(lines)}"
    if phase == "backward" and evidence.samples.where(phase="forward").part(decomposes) >= LARGE:
        words += ", with the gradients of decompositions of matrices"
    leaves = samples.counted(lambda row: () if row.node.frame.user else (row.node.frame.code,))
    (file, function), count = next(iter(leaves.most_common(1)), (("", ""), 0))
    if samples.total >= MIN_SAMPLES and count >= MOST * samples.total and not _LEADS.fullmatch(function):
        where = plain(file.rpartition("-packages/")[2])
        words += f", {percent(count / samples.total)} of it in {function_text(function)} of {where}"
    return words


def compute_bound_cpu(evidence: Evidence) -> Finding | None:
    """The avoidable work of a model on the CPU: Python code, which no device makes faster, and needless work."""
    if evidence.gpu.is_used is not False:
        return None
    python = python_in_model(evidence)
    if _runs(evidence) < MOST:
        return python
    return leading(filter(None, (python, page_faults(evidence), *needless_work(evidence))))


def _how_to_use_gpu(evidence: Evidence) -> str | None:
    """How to use a GPU that does nothing; None if there is no such GPU."""
    gpus = whole_gpus(evidence.view.gpus())
    idle = next((row.latest for row in gpus if is_free(row) or (row.used_by_run and runs_nothing(row))), None)
    if idle is None:
        return None
    return (
        f"move the model and each batch to GPU {idle.index} (.to('cuda')): this machine's {idle.name} is not used;"
        " torch must be a build with CUDA"
    )


#: CPU time of a page fault in the kernel, in us, with clearing the page and taking it back. Measured in
#: bench/page_faults.py: 1.5 to 1.7 on a virtual machine, 32 to 200 for a huge page, which is as large as 512.
PAGE_FAULT_US = 1.5
#: Lines that map memory themselves, or give it back: settings of malloc do not affect that memory.
_MAPS = re.compile(r"\b(?:mmap|madvise|memmap)\b")


def page_faults(evidence: Evidence) -> Finding | None:
    """Passes in which memory goes back to the kernel and is handed out again; page faults explain the CPU time.

    glibc gives large blocks back as soon as they are freed, and clears them at the next first touch (mallopt(3)).
    Faults are counted in all phases. So kernel time that they leave unexplained may all lie in the passes.
    """
    rows, native = evidence.computing, evidence.native_in(*PASSES)
    whole, cpu = NativeUse.joined(row.native for row in rows), sum(row.cpu_ratio or 0.0 for row in rows)
    hz = sum(row.faults.minor_hz for row in rows if row.faults is not None)
    if not native or not cpu or not hz or ALLOCATOR in whole.by_library():
        return None
    faulting = hz * PAGE_FAULT_US / 1e6 / cpu
    kernel = native.share("kernel") or 0.0
    other = max(0.0, (whole.share("kernel") or 0.0) - faulting) * whole.total() / native.total()
    maps = evidence.samples.where(phase=PASSES).part(lambda node: any(_MAPS.search(each.text) for each in node.frames))
    step = step_cells(evidence)
    computes = step.computing.share + step.where(PASSES, via="core").share
    error = sampling_error(kernel, native.total())
    share = Interval((kernel - other - error) * computes, kernel * computes)
    if other > (1.0 - MOST) * kernel or maps or not is_sure(evidence, share.low):
        return None
    action = (
        "start the training with MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1, or with tcmalloc or jemalloc: memory"
        " that is freed is then kept for the next step, and the process grows"
    )
    headline = f"page faults, {hz:,.0f} a second: freed memory returns to the kernel"
    headline, most = f"{percent(share.high)} of each step is {headline}", share.high
    fixes = [without_cost(evidence, action, share).with_open_gain]
    forward = evidence.samples.where(phase="forward")  # what is known of it may make the memory
    counts = forward.counted(lambda row: filter(None, (known_work_in(row.node),))).most_common(1)
    for known, part in ((known, n / forward.total) for known, n in counts if n >= MIN_SAMPLES):
        its_share = part * step.computing.where(MODEL if known.what in DIFFERENTIATED else {"forward"}).share
        fix = Fix(f"{known.action}: {percent(part)} of forward is in {known.what}")
        if part >= MOST and (known.what != PROPAGATED or has_same_input(evidence, its_share)):
            fixes.insert(0, without(evidence, "model", fix.action, Interval.around(its_share)).with_open_gain)
            if its_share > most:
                headline, most = f"{percent(its_share)} of each step is in {known.what}; {headline}", its_share
        elif part >= LARGE:
            fixes.append(fix)
    return new_finding(
        headline,
        *fixes,
        cause="page_faults",
        share=most,
        at=evidence.hottest_in("forward"),
        evidence={"faults_hz": hz, "kernel_share": kernel, "step_ms": evidence.phases.mean_ms},
    )


def needless_work(evidence: Evidence) -> Iterator[Finding]:
    """Needless work, as shown by the content of batches, by how often and how long backward runs, and by gradients."""
    gpu, step = evidence.gpu.steps, step_cells(evidence)
    if gpu is not None:
        computes = {name: gpu.phases[name].span for name in MODEL}
    else:  # work that is left out waits for no core
        computes = {name: step.computing.where({name}).share + step.where({name}, via="core").share for name in MODEL}
    backward, forward = computes["backward"], computes["forward"]
    found = (
        _padding(evidence, sum(computes.values())),
        _repeated(evidence, backward, forward),
        _unused(evidence, backward),
    )
    yield from filter(None, (*found, _sliced(evidence, backward, forward)))


def _padding(evidence: Evidence, computes: float) -> Finding | None:
    """Padding: the model's work is at least proportional to the positions, if a batch holds nothing but texts."""
    loader = evidence.data.loader
    batches = loader.batches if loader is not None else None
    padding = batches.padding / batches.tokens if batches is not None and batches.tokens and batches.padding else 0.0
    share = computes * padding
    if batches is None or padding < LARGE or not is_sure(evidence, share, early=False):
        return None
    most = (batches.tensors or 0) / batches.count * 8 * (batches.tokens or 0)  # bytes of an int64
    by_positions = (
        batches.total_bytes <= most and not evidence.samples.where(phase=MODEL).part(below="recurrent") >= MOST
    )
    action = "pad each batch to its own longest text, and put texts of similar length into one batch"
    return _finding(
        evidence,
        "padding",
        f"{percent(padding)} of the positions in a batch are padding, on which the model computes too",
        action,
        share,
        is_known=by_positions,
        at=Samples.joined((evidence.samples, evidence.data.workers.samples)).hottest(below="collates"),
        padding_share=padding,
    )


def _repeated(evidence: Evidence, computes: float, forward: float) -> Finding | None:
    """Several passes over one kept graph, or one for each sample of a batch, if a single pass would do.

    Each batch and each update needs a pass of its own; a closure runs as often as it must, and gradients that are
    returned serve no update. Without samples it is unknown to which graphs the passes belong.
    """
    steps, fetches = evidence.stats, evidence.data.fetches
    passes, samples = steps.backwards / max(1, fetches, steps.updates), evidence.samples.where(phase="backward")
    needed = evidence.samples.part(lambda node: node.is_in_closure) or samples.part(lambda node: node.returns_gradients)
    share = computes * (1.0 - 1.0 / max(1.0, passes))
    if not fetches or passes < 2.0 or needed or not is_sure(evidence, share, early=False):
        return None
    keeps = samples.part(lambda node: any("retain_graph" in frame.text for frame in node.frames))
    if samples.total >= MIN_SAMPLES and keeps < TINY:
        loader = evidence.data.loader
        if loader is None or not passes >= NEARLY_ALL * (loader.facts.batch_size or 1) > 2.0:
            return None
        return _finding(
            evidence,
            "repeated_backward",
            f"backward runs {passes:.0f} times for each batch, once for each of its samples",
            "compute the gradients of all samples at once, with torch.func.vmap(grad(loss)) or Opacus; or if you need"
            " only their sum, pass the whole batch to the model",
            share + forward * (1.0 - 1.0 / passes),
            is_open=True,  # what the loop does beside the passes ends as well
            at=evidence.hottest_in("backward"),
            backwards_per_batch=passes,
        )
    action = "add the losses of a batch, and call backward() once, unless you need the gradient of each"
    return _finding(
        evidence,
        "repeated_backward",
        f"backward runs {passes:.0f} times for each batch",
        action,
        share,
        is_known=keeps > 0,
        at=evidence.hottest_in("backward"),
        backwards_per_batch=passes,
    )


def _unused(evidence: Evidence, computes: float) -> Finding | None:
    """Gradients that no optimizer uses; every input of a product is assumed to cost backward the same."""
    unused = evidence.process.unused_gradients
    share = computes * unused.inputs / (unused.of_inputs or 1) if unused is not None else 0.0
    if unused is None or not is_sure(evidence, share, early=False):
        return None
    action = (
        "freeze what no optimizer trains: run it under torch.no_grad(), or set requires_grad_(False) on its parameters"
    )
    return _finding(
        evidence,
        "unused_gradients",
        f"gradients of {unused.tensors} of {unused.of_tensors} parameters are computed, but no optimizer updates these",
        action,
        share,
        unused_share=unused.inputs / unused.of_inputs,
    )


#: A part of a tensor: ``z[:, t]``, ``z[..., t : t + 5]``, ``z[t]``, ``z.select(1, t)``; not a layer, ``layers[i](x)``.
_SLICES = re.compile(
    r"\w\[(?:(?::|\.\.\.), ?)+[a-z_]|\w\[(?:[a-z]|step|pos|time)(?:, ?[:.]+)*\](?![\[(])|\.(?:select|narrow)\("
)


def _sliced(evidence: Evidence, backward: float, forward: float) -> Finding | None:
    """A loop in forward over parts of a tensor: for each, backward fills a gradient as large as the whole tensor.

    Those gradients take the time beyond what any backward pass takes.
    """
    usual, times = BACKWARD_PER_FORWARD * forward * evidence.times_run("backward"), backward / (forward or math.inf)
    is_inner, share = in_inner_loop(evidence.samples), backward - usual
    hot = evidence.samples.where(phase="forward").hottest(
        lambda node: is_inner(node) and any(_SLICES.search(frame.text) for frame in node.frames[-1:] if frame.user)
    )
    if backward < LARGER * usual or hot is None or hot.share < REPORTED or not is_sure(evidence, share):
        return None
    action = (
        f"take all parts at once, before the loop at {at(hot.place)}: x.unbind(1) in place of x[:, t], or split();"
        " backward then joins their gradients once"
    )
    headline = (
        f"backward takes {times:.0f} times as long as forward: for each part of a tensor that a loop takes, it fills a"
        " gradient as large as the whole tensor"
    )
    return _finding(evidence, "slices", headline, action, share, is_open=True, at=hot, backward_per_forward=times)


def _finding(
    evidence: Evidence,
    cause: str,
    headline: str,
    action: str,
    share: float,
    *,
    is_known: bool = True,
    is_open: bool = False,
    at: HotLine | None = None,
    **figures: float,
) -> Finding:
    """The finding about work that takes this share of the step.

    ``is_known``: whether its gain is known; ``is_open``: whether that gain has no upper end.
    """
    fix = Fix(action)
    if is_known and evidence.gpu.steps is not None:
        fix = without_cost(evidence, action, Interval(HALF * share, share))
    elif is_known:
        fix = without(evidence, "model", action, Interval.around(share))
    return new_finding(
        headline,
        fix.with_open_gain if is_open else fix,
        severity="warning" if fix.gain is not None else "info",
        cause=cause,
        share=share,
        at=at or evidence.hottest_in("forward"),
        evidence={**figures, "step_ms": evidence.phases.mean_ms},
    )
