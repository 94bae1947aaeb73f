"""Rules about needlessly slow computation: by settings in force, or by the way in which parameters are updated."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial

from tuimon.code_origin import is_library_file
from tuimon.diagnosis.cells import step_cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import decomposes, in_inner_loop
from tuimon.diagnosis.finding import WARNING_GAIN, Change, EditName, Finding, Fix, leading, new_finding
from tuimon.diagnosis.line_text import at_hot, idle_part, in_library
from tuimon.diagnosis.rule import is_sure
from tuimon.diagnosis.rules.advice import ANOMALY, options
from tuimon.diagnosis.step_model import TAKES_ERROR, without, without_cost, without_if_sure
from tuimon.interval import Interval
from tuimon.library_code import is_tracer
from tuimon.records import MODEL, OptimizerFacts
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.text import percent
from tuimon.threshold import MIN_SAMPLES, REPORTED, UNUSUAL, Threshold
from tuimon.torch_code import elementwise_update, multiplies

FLOAT32_TAKES = Threshold(
    0.50,
    "time that float32 takes on a CPU, as a part of float64's, or of bfloat16's if it has AVX-512 without bfloat16"
    " products",
    "measured in bench/cpu_settings.py: 0.44 to 0.63 of float64's (0.21 in convolutions), 0.41 to 0.62 of bfloat16's",
)
AVX2_TAKES = Threshold(
    0.15,
    "time that float32 takes, as a part of bfloat16's on a CPU without AVX-512, or of float16's without float16"
    " products",
    "measured in bench/cpu_settings.py: 0.08 to 0.20 of bfloat16's, 0.07 to 0.18 of float16's",
)
TRACED_TAKES = Threshold(
    0.45,
    "time that Python code takes without a profiler or tracer, as a part of its time under one",
    "measured in bench/cpu_settings.py: 0.33 to 0.67 under cProfile, 0.23 to 0.55 under sys.settrace",
)
TRACED_ERROR = Threshold(
    0.25, "tolerance of the time without a profiler or tracer", "measured in bench/cpu_settings.py"
)
#: Least part of the work that remains, since checks still test a flag: our choice.
_MIN_LEFT = 0.05
#: A line that installs a tracer, with the name of its function: ``sys.settrace(self.trace)``.
_HANDED = re.compile(r"\.set(?:trace|profile)\s*\(\s*(?:\w+\.)*(\w+)")
_BF16_HERE = ("amx", "avx512_bf16")
#: By number type that a CPU without the right instructions converts one by one: those instructions, and the time of
#: float32 as a part of that type's. CPUs with AMX have float16.
_EMULATED = {
    "bfloat16": {"avx512": FLOAT32_TAKES, "avx2": AVX2_TAKES},
    "float16": dict.fromkeys(("avx512_bf16", "avx512", "avx2"), AVX2_TAKES),
}
_FLOAT32 = "use float32 where its 7 digits are enough: model.float(), and inputs in float32 (numpy makes float64)"


def slow_setting(evidence: Evidence) -> Finding | None:
    """Settings that slow down the computation, first the one whose change gains most."""
    gpu = evidence.gpu.steps
    if (gpu is None and evidence.gpu.is_used is not False) or not is_sure(evidence, 1.0, early=False):
        return None
    found = [*_types(evidence), *_sampled(evidence)]
    return leading(each for each in found if (each.estimated_speedup or each.best.most) >= WARNING_GAIN)


def _setting(
    evidence: Evidence,
    cause: str,
    headline: str,
    action: str,
    share: float,
    *,
    takes: float = _MIN_LEFT,
    error: float = 0.0,
    is_open: bool = False,
    hot: HotLine | None = None,
) -> Finding:
    """The finding about a setting in force that slows down this share of each step.

    ``takes``, with its ``error``: the part of the share that is left without the setting; ``is_open``: or even less.
    """
    gpu = evidence.gpu.steps
    if gpu is None:
        # a tracer slows down all that the thread does with the GIL, in any phase
        what: EditName = "gil" if cause == "tracer" else "model"
        fix = without(evidence, what, action, Interval.around(share, share * error / (1.0 - takes)), to=takes)
        fix = fix._replace(changes_training=cause == "float64")
        fix = fix.with_open_gain if is_open else fix
    elif cause == "float64":  # the gain depends on the GPU model
        fix = Fix(action, changes_training=True).with_upper_bound(math.inf if share >= REPORTED else None)
    else:  # the CPU submits more work sooner
        low, high = Interval.around(share * (1.0 - takes), share * error)
        fix = without_if_sure(evidence, action, Interval(min(low, gpu.idle.low), min(high, gpu.idle.high)))
    return new_finding(headline, fix, cause=cause, share=share, at=hot, evidence={f"{cause}_share": share})


def lower_is_faster(evidence: Evidence) -> bool:
    """True if bfloat16 is not in use and the CPU has instructions for its products."""
    process = evidence.process
    computed = (*process.matmul_dtypes, *process.parameter_dtypes)
    return process.vectors in _BF16_HERE and "bfloat16" not in computed


def _types(evidence: Evidence) -> Iterator[Finding]:
    """The number types that the process reports and that this CPU or GPU computes with more slowly."""
    process, gpu, share = evidence.process, evidence.gpu.steps, evidence.phases.share_of(*MODEL)
    computed = {*process.matmul_dtypes, *process.parameter_dtypes}
    takes = {dtype: by[process.vectors] for dtype, by in _EMULATED.items() if process.vectors in by}
    dtype = next((dtype for dtype in takes if dtype in computed), None)
    if dtype is not None and gpu is None:
        how = "parameters in float32" if dtype in process.parameter_dtypes else "no torch.autocast"
        yield _setting(
            evidence,
            dtype,
            f"forward and backward take {percent(share)} of each step in {dtype}, which this CPU has no instructions"
            " for",
            f"compute in float32 on this machine ({how})",
            share,
            takes=takes[dtype],
            error=TAKES_ERROR,
        )
    # for a line search, or where matrices are decomposed, it is probably chosen for its digits
    needs_digits = any(each.name == "LBFGS" for each in process.optimizers) or evidence.samples.in_steps.part(
        decomposes
    )
    if process.parameter_dtypes == ["float64"] and not needs_digits:
        busy = Interval.around(evidence.phases.share_of(*MODEL, "optimizer"))
        if gpu is not None:
            busy = Interval(1.0 - gpu.idle.high, 1.0 - gpu.idle.low)
        yield _setting(
            evidence,
            "float64",
            f"the parameters are float64: computing with them takes {idle_part(busy)} of each step",
            _FLOAT32,
            busy.low,
            takes=FLOAT32_TAKES,
            error=TAKES_ERROR,
        )


def _sampled(evidence: Evidence) -> Iterator[Finding]:
    """Settings that samples show at work: argument checks, recorded stacks, tracers of each call or line of Python.

    A tracer may also be known from the process's report; it slows down code that holds the GIL.
    """
    samples, tid = evidence.samples.in_steps, evidence.tid
    for cause, is_it, headline, action in (
        (
            "validation",
            _checks_arguments,
            "torch.distributions checks its arguments for {} of each step",
            "turn off the checks of torch.distributions once the program is right:"
            " torch.distributions.Distribution.set_default_validate_args(False), or validate_args=False",
        ),
        (
            "anomaly",
            _notes_stack,
            "autograd's anomaly detection records the stack of each operation for {} of each step",
            ANOMALY[1],
        ),
    ):
        checking = samples.where(is_it)
        if checking.total >= MIN_SAMPLES:
            share, hot = checking.total / samples.total, checking.hottest()
            is_open = cause == "anomaly"  # samples do not show how it checks the gradients
            yield _setting(evidence, cause, headline.format(percent(share)), action, share, is_open=is_open, hot=hot)
    held = next((row.gil_ratio for row in evidence.threads if row.tid == tid), None)
    tracing = samples.where(_traces(evidence))
    is_on = tracing.total >= MIN_SAMPLES or "tracer" in evidence.process.debug_settings
    if held is None:
        return
    traced = partial(_setting, evidence, "tracer", share=held, error=TRACED_ERROR)
    if is_on:
        yield traced(
            f"a tracer follows the Python code, which takes {percent(held)} of each step",
            "train without the profiler, debugger or coverage measurement that sees each call or line of Python",
            takes=TRACED_TAKES,
            hot=tracing.hottest(),
        )
    if "tracemalloc" in evidence.process.debug_settings:
        yield traced(
            f"tracemalloc records where Python allocates: its code takes {percent(held)} of each step",
            "leave out tracemalloc.start() (or PYTHONTRACEMALLOC), which records a stack for each allocation",
            is_open=True,  # strings and containers take up to a hundred times as long
        )


def without_settings(samples: Samples, evidence: Evidence) -> Samples:
    """The samples without the work that a setting adds."""
    traces = _traces(evidence)
    return samples.where(lambda node: not (_checks_arguments(node) or _notes_stack(node) or traces(node)))


def _traces(evidence: Evidence) -> Callable[[StackNode], bool]:
    """A test of samples: is it in a tracer, a library's or a function that the program passes to ``sys.settrace``?"""
    handed = (_HANDED.search(place.source) for place in evidence.machine.lines_that_set("tracer"))
    names = {match[1] for match in handed if match is not None}
    return lambda node: any(
        (frame.user and frame.function.rpartition(".")[2] in names) or is_tracer(frame.file, frame.function)
        for frame in node.frames
    )


def _notes_stack(node: StackNode) -> bool:
    """True if autograd records a stack: apart from compilers, only autograd calls this function of torch.fx.

    See ``PyAnomalyMetadata::store_stack`` in torch's ``csrc/autograd/python_anomaly_mode.cpp``.
    """
    notes = any(
        frame.function == "format_stack" and frame.file.endswith("torch/fx/traceback.py") for frame in node.frames
    )
    return notes and not node.has("compile")


def _checks_arguments(node: StackNode) -> bool:
    leaf = node.frame
    if leaf.file.endswith("torch/distributions/constraints.py"):
        return True
    return leaf.file.endswith("torch/distributions/distribution.py") and leaf.function in (
        "__init__",
        "_validate_sample",
    )


FUSED_OF_SINGLE = Threshold(
    0.10,
    "time of a fused update, as a part of one that goes through tensors one by one",
    "measured in bench/launches.py: 0.14 to 0.17 of Adam's on a CPU; less than 0.05 on an H100, with 800 tensors",
)
#: The rest of an update is at most this many times a fused update, and at least nothing: our choice.
_FEWEST = 2.0
#: torch's optimizers that have a fused form on a GPU: https://pytorch.org/docs/stable/optim.html
_ON_GPU = frozenset({"adam", "adamw", "sgd", "adagrad"})
#: torch's optimizers whose fused form is faster on a CPU as well.
_ON_CPU = frozenset({"adam", "adamw"})
FUSED_TAKES = Threshold(
    0.30,
    "time of a fused update in one group, as a part of that of torch's Adam or AdamW with many tensors",
    "measured in bench/fused_update.py: 0.10 to 0.47 with one thread, 0.10 to 0.62 with two, and less in longer"
    " updates; 0.39 to 0.84 with SGD, for which it is not offered; 0.26 to 0.41 of a fused update of small tensors in"
    " groups of one",
)
SMALL_TENSOR = Threshold(
    10_000.0,
    "mean number of elements of a tensor up to which one group is the fix",
    "measured in bench/fused_update.py",
)
SMALL_PART = Threshold(
    0.15,
    "share of a hand-written update that holds the GIL, from which its operations count as too small to be anything"
    " but overhead",
    "our choice, between what torch 2.13 showed: 0.2 to 0.4 for operations of 2 to 7 µs, 0.04 to 0.13 for those"
    " of 10 µs and more",
)
_FUSED = "set fused=True for the optimizer: one operation then updates a tensor, instead of a dozen"


def fused_fix(evidence: Evidence, idle_at_most: float = 1.0) -> Fix | None:
    """The fix to update all tensors in a few launches; None if they already are, or on a CPU, or by another library.

    ``idle_at_most``: the share of the step that the GPU idles at most. It bounds the certain gain if launches set the
    pace; but a fused update is less work for the GPU as well, so all of the update may be saved.
    """
    facts, (single, together) = _largest(evidence), _unfused(evidence, _ON_GPU)
    if not evidence.gpu.is_used or not single + together:
        return None
    takes = FUSED_OF_SINGLE if single >= together else FUSED_TAKES
    surely = min(idle_at_most, (1.0 - min(1.0, _FEWEST * takes)) * (single + together))
    gone = Interval(surely, evidence.phases.share_of("optimizer"))
    name = facts.name if facts is not None else "the optimizer"
    now = "tensor" if single >= together else "part of the update"
    action = (
        f"set {options(evidence).fused} for {name}: a few launches update all tensors, instead of some for each {now}"
    )
    return without_cost(evidence, action, gone)._replace(change=Change("optimizer", float(takes)))


def _unfused(evidence: Evidence, fusible: Collection[str]) -> tuple[float, float]:
    """The shares of the step in which these optimizers update tensors one by one, and all tensors by each operation.

    Both are 0 if the largest optimizer is known to be another, or fused.
    """
    facts, samples = _largest(evidence), evidence.samples.where(phase="optimizer")
    if evidence.samples.in_steps.total < MIN_SAMPLES or (facts is not None and facts.fused):
        return 0.0, 0.0
    counts = samples.counted(
        lambda row: [how for each in row.node.frames if (how := elementwise_update(*each.code))][-1:]
    )
    each, single, multi = evidence.phases.share_of("optimizer") / (samples.total or 1), 0.0, 0.0
    for (how, name), count in counts.items():
        if (facts.name.lower() if facts is not None else name) in fusible:
            single, multi = (single + each * count, multi) if how == "single" else (single, multi + each * count)
    return single, multi


def _largest(evidence: Evidence) -> OptimizerFacts | None:
    """The facts of the optimizer that has the most tensors."""
    return max(evidence.process.optimizers, key=lambda facts: facts.tensors or 0, default=None)


#: A line that limits gradients, or its function, and one that does so for several tensors.
_CLIPS, _SEVERAL = re.compile(r"\bclip_?\w*grad"), re.compile(r"param\w*s\b")


def _clipped_one_by_one(evidence: Evidence) -> HotLine | None:
    """The line on the CPU that clips in a loop over tensors, or over as many groups; its share is of the step."""
    each, is_inner = _has_group_each(_largest(evidence)), in_inner_loop(evidence.samples)

    def is_single(node: StackNode) -> bool:
        line = node.user_line
        clips = line is not None and _CLIPS.search(f"{line.function} {line.text}") is not None
        return clips and is_inner(node) and (each or not (line and _SEVERAL.search(line.text)))

    hot = evidence.samples.where(phase="other").hottest(is_single) if evidence.gpu.is_used is False else None
    return hot and hot._replace(share=hot.share * evidence.phases.share_of("other"))


def _has_group_each(facts: OptimizerFacts | None) -> bool:
    """True if each tensor has a group of its own and is small, so that calls take longer than the work on it."""
    if facts is None or facts.tensors is None or facts.groups != facts.tensors or facts.tensors < 2:
        return False
    return (facts.elements or 0) <= SMALL_TENSOR * facts.tensors


def optimizer_bound(evidence: Evidence) -> Finding | None:
    """The update takes an unusual part of the step: many small parameters, or a dense update of few touched rows.

    An update on the CPU by a user's function, of rows or tensors one by one, is reported at a smaller share:
    its operations are so small that the Python around them takes most of the time, so the GIL is held. So is clipping
    of tensors one by one. An update that multiplies matrices, or L-BFGS's, cannot be fused: it counts as computation,
    which other rules report.

    Updating every second batch saves half of the time, and ever fewer updates nearly all: a gain of 1 / (1 - share). A
    GPU that is not the bottleneck may hide the update, so no gain is estimated.
    """
    optimizer, gpu, hot = evidence.phases.row("optimizer"), evidence.gpu.steps, evidence.hottest_in("optimizer")
    if optimizer is None or evidence.gpu.awaits_times:
        return None
    share, what, is_busy, clip = optimizer.share, "", gpu is not None and gpu.is_bottleneck, None
    if (by_hand := _hand_written_fix(evidence, optimizer.share, hot)) is not None:
        what, fixes = ": Python code updates tensors one by one", [by_hand]
    else:
        share = gpu.phases["optimizer"].span if gpu is not None and is_busy else share
        if gpu is None:  # a thread that holds the GIL keeps any other code waiting as well
            share -= step_cells(evidence).where({"optimizer"}, via="gil").share
        share *= 1.0 - _part(evidence, is_product)
        clip, updates = _clipped_one_by_one(evidence), share
        if clip is not None:
            share, what = share + clip.share, f": {percent(clip.share)} clip gradients tensor by tensor"
        if not is_sure(evidence, share, UNUSUAL) and not (clip is not None and is_sure(evidence, clip.share)):
            return None
        at_once = fused_fix(evidence, gpu.idle.high if gpu is not None and not is_busy else 1.0)
        gained = updates if evidence.gpu.is_used is False or is_busy else 0.0
        fixes = [at_once] if at_once is not None else _library_update_fixes(evidence, gained, share - updates)
    return new_finding(
        f"the optimizer's update takes {percent(share)} of each step{what}{in_library(hot)}",
        *fixes,
        share=share,
        at=(clip, hot),
        optimizer_ms_per_step=optimizer.ms_per_step,
        step_ms=evidence.phases.mean_ms,
    )


def _hand_written_fix(evidence: Evidence, share: float, hot: HotLine | None) -> Fix | None:
    """The fix for a user function on the CPU that updates tensors itself, or by torch's operations."""
    if hot is None or hot.library is not None or evidence.gpu.is_used is not False:
        return None

    def is_own(node: StackNode) -> bool:
        others = (frame.kind == "optimizer" or is_library_file(frame.file) for frame in node.called)
        return node.function == hot.place.code and not any(others)

    own, held = share * _part(evidence, is_own), evidence.gil_held_in(hot.place)
    if not is_sure(evidence, own) or held is None or held < SMALL_PART * own:
        return None
    whole = f"make {at_hot(hot)} update whole tensors, all rows at once, and all tensors with torch._foreach operations"
    return without(evidence, "optimizer", whole, Interval.around(own))


def _part(evidence: Evidence, is_it: Callable[[StackNode], bool]) -> float:
    """The part of the update's samples in stacks that match; waits for a core count for all stacks."""
    known = [
        (cell.share, cell.node) for cell in step_cells(evidence).where({"optimizer"}) if cell.node and not cell.via
    ]
    return sum(cpu for cpu, node in known if is_it(node)) / (sum(cpu for cpu, _ in known) or 1.0)


def is_product(node: StackNode) -> bool:
    """True if one of the innermost lines multiplies matrices, or its function is named after a method that does; or if
    it is L-BFGS, which makes a direction of its last gradients.
    """
    inner = node.frames[-2:]  # a line, and the code of torch that it calls
    return any(multiplies(frame.function, frame.text) or frame.file.endswith("optim/lbfgs.py") for frame in inner)


def _library_update_fixes(evidence: Evidence, gained: float, clipped: float) -> list[Fix]:
    """The fixes for an update by a library, which could save this share of the step, the surest first.

    A fused update is a change of one word. If the update takes longer than forward and backward together, it updates
    far more than they use, and so would a fused one. ``clipped``: the share in which tensors are clipped one by one.
    """
    facts = _largest(evidence)
    unfused = sum(_unfused(evidence, _ON_CPU)) if evidence.gpu.is_used is False else 0.0
    is_fused, action = facts is not None and facts.fused is True, _FUSED
    less = without(
        evidence,
        "optimizer",
        f"use sparse gradients for large embeddings (sparse=True, SparseAdam)"
        f"{'' if unfused or is_fused else ', a fused optimizer'}"
        " or an update every few batches",
        Interval.around(gained),
        changes_training=True,
    )
    is_longest = evidence.phases.share_of("optimizer") > evidence.phases.share_of(*MODEL)
    if facts is not None and _has_group_each(facts) and (is_fused or clipped or unfused):
        # the fused update, too, goes through groups one by one
        unfused, is_longest = (gained if is_fused else unfused) + clipped, False
        action = (
            f"give {facts.name} one group of parameters for each learning rate and decay, not {facts.groups} of one"
            " tensor each: update, clipping and schedule then handle the tensors of a group at once"
            f"{'; and set fused=True' if unfused and not is_fused else ''}"
        )
    elif clipped:
        once = "clip all gradients with one call, not tensor by tensor: the limit then applies to their common norm"
        return [without(evidence, "optimizer", once, Interval.around(clipped), changes_training=True)]
    update = Interval.around(unfused, unfused * TAKES_ERROR / (1.0 - FUSED_TAKES))
    fused = without(evidence, "optimizer", action, update, to=float(FUSED_TAKES))
    if not fused.estimated_speedup:
        return [less.with_open_gain if is_longest else less]
    # sparse gradients shorten backward, too, which otherwise fills dense ones
    return [less.with_open_gain, fused] if is_longest else [fused, less]
