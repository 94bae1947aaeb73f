"""The rule about a model that computes on the CPU: the faults that it names, and work that no model needs.

A fault names work that no finding explains, such as sorts in forward, with a remedy of unknown gain. To add one that
the text of a line shows, or the library that runs below it, write a row of ``diagnosis/known.py``. For any other, write
a function here that yields it, with ``is_sure`` for its share of the step, and name it in ``FAULTS``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tuimon.code_origin import is_library_file
from tuimon.diagnosis.cells import Cell, Cells, step_cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import is_free, runs_nothing, whole_gpus
from tuimon.diagnosis.evidence.lines import (
    decomposes,
    in_inner_loop,
    lines_that_run,
    loop_over_data,
    update_path,
    whole_sequences,
)
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD
from tuimon.diagnosis.finding import WARNING_GAIN, Finding, Fix, leading, new_finding
from tuimon.diagnosis.known import (
    DIFFERENTIATED,
    GRADIENT_HOOKS,
    SAVED_HOOKS,
    figures,
    has_small_operations,
    known_work_at,
    known_work_in,
    shown_at,
)
from tuimon.diagnosis.line_text import KEEP_STATE, WAIT_TIPS, times_a_step, work_at
from tuimon.diagnosis.rule import Unclaimed, is_sure
from tuimon.diagnosis.rules.advice import advice_on_debugging, advice_on_warnings
from tuimon.diagnosis.rules.compute import lower_is_faster
from tuimon.diagnosis.rules.cores import threads_set_at
from tuimon.diagnosis.rules.interpreter import python_in_model
from tuimon.diagnosis.rules.side_work import wait_in_pass
from tuimon.diagnosis.step_model import HALF, without, without_cost
from tuimon.interval import Interval
from tuimon.native_code import ALLOCATOR, CodeKind, NativeUse
from tuimon.records import MODEL, PASSES, Place
from tuimon.session.series import sampling_error
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.text import at, function_text, percent, plain
from tuimon.threshold import LARGE, LARGER, MIN_SAMPLES, MOST, NEARLY_ALL, REPORTED, TINY
from tuimon.torch_code import composes, multiplies

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
    if not fixes and not faults:
        gains = [
            (each.best.least, each.estimated_speedup or 1.0) for each in unclaimed.found if each.severity != "benign"
        ]
        gain_little = all(least is not None and likely < WARNING_GAIN for least, likely in gains)
        fixes = ["leave the model as it is: it spends its time computing"]
        if gain_little and wait_in_pass(unclaimed) is None:
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
    fixes = [without_cost(evidence, action, share).with_open_gain]
    forward = evidence.samples.where(phase="forward")  # what is known of it may make the memory
    counts = forward.counted(lambda row: filter(None, (known_work_in(row.node),))).most_common(1)
    for known, part in ((known, n / forward.total) for known, n in counts if n >= MIN_SAMPLES):
        fix = Fix(f"{known.action}: {percent(part)} of forward is in {known.what}")
        if part >= MOST:
            fix = without(
                evidence, "model", fix.action, Interval.around(part * step.computing.where({"forward"}).share)
            )
            fixes.insert(0, fix.with_open_gain)
        elif part >= LARGE:
            fixes.append(fix)
    return new_finding(
        f"{percent(share.high)} of each step is page faults, {hz:,.0f} a second: freed memory returns to the kernel",
        *fixes,
        cause="page_faults",
        share=share.high,
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


# -- faults in work that no finding explains


class Fault(NamedTuple):
    """A known fault of the loop."""

    what: str  # the part of a step, and its work: "40 % in sorts"
    remedy: Fix | None
    at: Place | None = None


class Unexplained(NamedTuple):
    """The part of a step that no finding explains, as faults are found in it."""

    evidence: Evidence
    cells: Cells  # shares of a step
    computes: dict[str, float]  # by phase, the share of a step in which the training thread runs a pass or an update
    samples: Samples  # the training thread's in these phases
    found: list[Fault]  # by the functions before, in the order of ``FAULTS``


def faults_in(unclaimed: Unclaimed) -> list[Fault]:
    """All faults of a loop; only those in its passes if findings show the cause of the loop's waits."""
    samples, found = unclaimed.evidence.samples.where(phase=PASSES).without_bare_module_calls, list[Fault]()
    rest = Unexplained(unclaimed.evidence, unclaimed.cells, unclaimed.computes, samples, found)
    for faults in IN_PASSES if unclaimed.holds_up else FAULTS:
        found += [*faults(rest)]
    return found


# -- faults in the passes and the update


def known_work(rest: Unexplained) -> Iterator[Fault]:
    """Work that a row of ``known.py`` names."""
    samples, computing = rest.samples, sum(rest.computes.values())
    counts = samples.counted(lambda row: [(known, row.phase)] if (known := known_work_in(row.node)) is not None else [])
    for known in dict.fromkeys(known for (known, _), _ in counts.most_common()) if samples.total >= MIN_SAMPLES else ():
        hooks = known.what in (SAVED_HOOKS[0], GRADIENT_HOOKS[0])  # which may write to a disk, and do not compute then
        of = {name: rest.evidence.phases.share_of(name) for name in PASSES} if hooks else rest.computes
        share = sum(part * counts[known, name] / (samples.phases[name] or 1) for name, part in of.items())
        what, fix = known.what, Fix(known.action)
        if what in DIFFERENTIATED and not counts[known, "backward"]:
            what += ", with its part of backward"
            share += rest.computes["backward"] * counts[known, "forward"] / (samples.phases["forward"] or 1)
        if is_sure(rest.evidence, share / (computing or 1.0)):  # waits for a core shorten both sides
            rows = Samples(tuple(row for row in samples.rows if known_work_in(row.node) == known))
            lines, hot = rows.counted(lambda row: filter(None, [shown_at(known, row.node)])), rows.hottest()  # noqa: B023
            fix = fix.with_upper_bound(1.0 / (1.0 - share)) if hooks else fix
            yield Fault(
                f"{percent(share)} in {what}", fix, max(lines, key=lines.__getitem__, default=hot and hot.place)
            )


#: Work below Python that is not the model's, by kind of library: its name, and the remedy.
_BELOW_PYTHON: dict[CodeKind, tuple[str, str]] = {
    "pool": (
        "OpenMP, which waits for the other threads of an operation",
        "try fewer threads (torch.set_num_threads): operations are small, or unevenly divided",
    ),
    "kernel": (
        "the kernel, for other work than new memory",
        "see which system calls take that time: strace -c -f -p PID, which slows the training while it runs",
    ),
}


def below_python(rest: Unexplained) -> Iterator[Fault]:
    """Threads of a pool that wait for longer than one of them works; or more time in the kernel than a model needs.

    A pool also waits for a thread of its own that waits for a core. Most of what models need of the kernel is page
    faults, which have a cause of their own.
    """
    native, computing = rest.evidence.native_in(*PASSES), sum(rest.computes.values())
    for_cores = rest.cells.where(PASSES, via="core").share
    least = {"pool": 1.0 / (rest.evidence.process.intra_op_threads or math.inf) + for_cores, "kernel": LARGE}
    for kind, (does, instead) in _BELOW_PYTHON.items():
        part = native.share(kind) or 0.0
        if part >= least[kind] and is_sure(rest.evidence, part * computing):
            yield Fault(f"{percent(part * computing)} in {does}", Fix(instead))


def one_function(rest: Unexplained) -> Iterator[Fault]:
    """A loop over parts of the data, of small operations; else a function whose own work is most of forward.

    What the function calls of other packages counts as its own, and of torch what only composes operations; calls of
    modules, matrix products and waits do not. Backward does not show which function it belongs to.
    """
    evidence, forward = rest.evidence, rest.evidence.phases.share_of("forward")
    loop, native = loop_over_data(evidence.samples.in_steps), evidence.native_in("forward")
    is_named = loop is not None and loop.place.code in {each.at.code for each in rest.found if each.at}
    if loop is not None and not is_named and has_small_operations(native) and is_sure(evidence, loop.share * forward):
        line = at(loop.place)
        once = (
            f"replace the loop at {line} with operations on whole tensors, unless an iteration needs another's result"
        )
        yield Fault(f"{percent(loop.share * forward)} in small operations of the loop at {line}", Fix(once), loop.place)
        return

    def is_own(node: StackNode) -> bool:
        line = node.user_line
        is_own = all(is_library_file(frame.file) or composes(frame.file) for frame in node.called)
        return line is not None and is_own and node.activity not in WAIT_TIPS and not multiplies("", line.text)

    samples = rest.samples.where(phase="forward")
    hot = samples.hottest(is_own) if samples.total >= MIN_SAMPLES else None
    if hot is None or hot.share < MOST or not is_sure(evidence, hot.share * forward):
        return
    known, line = known_work_at(hot.place, rest.samples, native=native), at(hot.place)
    see = f"see whether {line} has to be computed in each step: keep what depends on neither batch nor weights, and"
    action = known.action if known is not None else f"{see} check the shapes of its tensors"
    if action not in {each.remedy.action for each in rest.found if each.remedy is not None}:
        yield Fault(f"{percent(hot.share * forward)} in {line}", Fix(action), hot.place)


def sequences_again(rest: Unexplained) -> Iterator[Fault]:
    """A model that draws tokens without what it has computed for those before."""
    again, forward = whole_sequences(rest.evidence.samples.in_steps), rest.evidence.phases.share_of("forward")
    share = rest.computes["forward"] * min(1.0, again.share / (forward or 1.0)) if again is not None else 0.0
    if again is not None and is_sure(rest.evidence, share):
        what = f"{percent(share)} in a model that runs over whole sequences for each token that it appends"
        yield Fault(what, Fix(KEEP_STATE), again.place)


def products_in_update(rest: Unexplained) -> Iterator[Fault]:
    """An optimizer that multiplies matrices, such as Muon or Shampoo, for most of the step."""
    share, hot = rest.computes["optimizer"], rest.evidence.hottest_in("optimizer")
    if hot is not None and multiplies(hot.place.function, hot.place.source) and is_sure(rest.evidence, share, MOST):
        fewer = (
            "multiply on the shorter side of each matrix (transpose it if it is tall), and all matrices of one shape at"
            " once, with torch.bmm()"
        )
        yield Fault(f"{percent(share)} in the update, above all in products of matrices", Fix(fewer), hot.place)


# -- faults in all of the loop

#: The remedy on a phase's hottest line.
_LESS = "see whether {} can do less, or all at once"


def long_backward(rest: Unexplained) -> Iterator[Fault]:
    """Backward that takes far longer than the forward pass before it, which only decompositions of matrices may.

    Hooks in backward are known work.
    """
    forward, backward = rest.computes["forward"], rest.computes["backward"]
    runs = rest.evidence.times_run("backward")
    times = backward / (runs * forward or math.inf)
    samples = rest.evidence.samples.where(phase="backward")
    is_known = rest.evidence.samples.where(phase="forward").part(decomposes) >= LARGE
    is_known = is_known or samples.part(lambda node: node.hook is not None) >= LARGE
    if times >= LARGER * BACKWARD_PER_FORWARD and not is_known and is_sure(rest.evidence, backward):
        see = (
            "see what backward goes through: results kept from earlier steps (detach() them), retain_graph=True, or"
            " indexing with repeated positions, whose gradients are added one by one"
        )
        hot = rest.evidence.hottest_in("backward")  # perhaps the program's own derivative of a function
        in_users_code = samples.part(lambda node: all(frame.kind != "backward" for frame in node.called))
        if hot is not None and in_users_code >= MOST:
            see = _LESS.format(at(hot.place))
        what = f"{'each pass of ' if runs > 1 else ''}backward takes {times:.0f} times as long as forward"
        yield Fault(what, Fix(see), hot and hot.place)


def on_one_thread(rest: Unexplained) -> Iterator[Fault]:
    """Large operations on one thread, next to cores that the run does not use. Measured on two cores, a second thread
    gains 1.05x to 1.6x if calls and the allocation of results take less than a tenth of the time; otherwise it costs
    time.
    """
    evidence, share = rest.evidence, sum(rest.computes.values())
    here, native = evidence.machine, evidence.native_in(*PASSES)
    small, taken, free = native.without("kernel").share("python", "memory"), here.cores_taken, here.free_cores
    idle = free if taken is None or taken.idle is None else min(free, taken.idle)
    unused, if_left = (round(cores / max(1, len(here.trainers))) for cores in (idle, free))
    number = 1 + (unused or if_left)
    is_large = small is not None and small < REPORTED and is_sure(evidence, share, MOST)
    if evidence.process.intra_op_threads != 1 or number == 1 or not is_large:
        return
    cores = "on cores that nobody uses" if unused else "once other programs leave them cores"
    how = f"torch.set_num_threads({number}) or OMP_NUM_THREADS={number}"
    if number > 2:  # how far more than two threads help was not measured
        how = f"try torch.set_num_threads(2), then more, up to {number}, as long as steps get shorter"
    if 1 in here.in_environment:
        how += "; the training was started with OMP_NUM_THREADS=1 (torchrun sets it)"
    fix = Fix(f"let {'2' if number == 2 else 'several'} threads share each operation, {cores}: {how}")
    most = 1.0 / (1.0 - share * (1.0 - 1.0 / number))
    yield Fault("all on one thread", fix.with_upper_bound(most), next(iter(threads_set_at(here, 1)), None))


#: Time outside the model's passes: how to recognise it, its name, and the remedy; the first match counts.
_BESIDE: tuple[tuple[Callable[[Cell], bool], str, str | None], ...] = (
    (
        lambda cell: "core" in cell.via,
        "waits for a core",
        "see what uses the cores: other programs (top), or more threads than there are cores",
    ),
    (lambda cell: cell.doing == "gc", "garbage collections", None),
    (lambda cell: cell.doing == "exchange" or "rank" in cell.via, "exchanges with other ranks", None),
    (lambda cell: cell.phase == "data", "data", _LESS),
    (lambda cell: cell.phase == "other", "work outside the passes", _LESS),
)


def beside_the_passes(rest: Unexplained) -> Iterator[Fault]:
    """Time outside the model's passes, by its kind."""
    left = list(rest.cells)
    for is_it, what, remedy in _BESIDE:
        cells, left = [cell for cell in left if is_it(cell)], [cell for cell in left if not is_it(cell)]
        if is_sure(rest.evidence, sum(cell.interval.low if cell.basis == "sampled" else cell.share for cell in cells)):
            hot = rest.evidence.hottest_in(cells[0].phase) if remedy == _LESS else None
            line = work_at(hot, update_path(rest.evidence.samples)) if hot is not None else what
            yield Fault(
                f"{percent(Cells(cells).share)} in {what}",
                Fix(remedy.format(line)) if remedy else None,
                hot and hot.place,
            )


IN_PASSES: tuple[Callable[[Unexplained], Iterator[Fault]], ...] = (
    known_work,
    below_python,
    sequences_again,
    one_function,
    products_in_update,
)
#: In the order of words in the headline, and of remedies.
FAULTS = (*IN_PASSES, long_backward, on_one_thread, beside_the_passes)
