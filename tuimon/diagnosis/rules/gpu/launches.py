"""The rule about launches that set the pace: the GPU waits for the CPU to submit more work."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tuimon.diagnosis.cells import PASSES, Doing, gpu_idle_in
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import CRITICAL_GAIN, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import GPU_TIMES, Rule
from tuimon.diagnosis.rules.advice import advice_on_debugging, options
from tuimon.diagnosis.rules.gpu.waits import IDLE_BOUNDS
from tuimon.diagnosis.rules.model import MODEL
from tuimon.diagnosis.rules.optimizer import FUSED_OF_SINGLE, FUSED_TAKES, fused_fix
from tuimon.diagnosis.step_model.edits import HALF, TAKES_ERROR
from tuimon.diagnosis.step_model.measured import without_cost, without_if_sure
from tuimon.diagnosis.threshold import LARGE, MIN_SAMPLES, MOST, REPORTED, SMALL, TRACE, Threshold
from tuimon.diagnosis.words import CHANGES_TRAINING, at, at_hot, idle_part, in_library, percent
from tuimon.records import Place
from tuimon.session.stacks.samples import HotLine
from tuimon.text import size_text

#: Calls of cudaFree per step. Each waits for all work of the GPU; a training makes none once torch's cache is full:
#: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#implicit-synchronization
_EVERY_STEP = 1.0
AUTOCAST_TAKES = Threshold(
    0.35,
    "part of forward and backward that autocast's casts take where launches set the pace",
    "measured in bench/launches.py: 0.14 to 0.25 on a CPU, where a cast is no launch; 0.39 on an H100, of 24 linear"
    " layers with norms",
)
#: Factor by which batches are to grow, step by step: our choice; beyond it, fitting learning rates are unknown.
_TIMES = 2
#: What the CPU does while it launches nothing, and whose cost other rules claim.
_WAITS: tuple[Doing, ...] = ("sync", "gc", "rank", "exchange", "io", "network", "lock", "sleep", "prompt")


@partial(
    Rule,
    "Launches set the pace",
    needs=(GPU_TIMES,),
    thresholds=(
        LARGE,
        TRACE,
        AUTOCAST_TAKES,
        TAKES_ERROR,
        FUSED_OF_SINGLE,
        FUSED_TAKES,
        HALF,
        MOST,
        SMALL,
        *IDLE_BOUNDS,
    ),
    causes=("allocator",),
    contradicts_order=True,
    takes=lambda cell, _: cell.phase in (*PASSES, "other") or cell.doing in ("copy", "launch"),
    claims_rest=True,
)
def launch_bound(evidence: Evidence) -> Finding | None:
    """The GPU keeps up with the CPU during the computation, so it waits for each launch."""
    gpu = evidence.gpu.steps
    if gpu is None or gpu.is_bottleneck or evidence.gpu.awaits_idle_causes:
        return None
    idle = gpu_idle_in(evidence, lambda cell: cell.phase != "data" and cell.doing not in _WAITS).up_to(
        evidence.gpu.launches_at_most
    )
    if idle.high < LARGE:
        return None
    allocator = _allocator(evidence, gpu.step_ms)
    if allocator is None:  # the launches of backward and of the optimizer are torch's own
        hot = evidence.hottest_in("forward")
        why, fixes = _fixes(evidence, idle)
    else:
        hot, why = allocator.hot, "torch's allocator waits for it to give memory back"
        fixes = [without_idling(evidence, allocator.advice, idle)]
    native = evidence.native_in(*MODEL)
    python = native.share("python") if native is not None else None
    if python is not None and python >= LARGE and allocator is None:
        why += f"; the interpreter has {percent(python)} of the CPU time of both passes"
    lead, exchange = gpu.lead("backward end"), evidence.ranks.exchanges.get(evidence.pid)
    return Finding(
        cause=None if allocator is None else "allocator",
        headline=f"GPU idle {idle_part(gpu.idle)} of each step: {why}{in_library(hot)}",
        fixes=tuple(fixes),
        share_of_step=idle.high,
        where=(hot.place,) if hot else (),
        evidence={
            **gpu.idle.as_evidence("gpu_idle"),
            "lead_us": lead.median_us if lead else None,
            "stream_idle_ratio": lead.stream_idle_ratio if lead else None,
            "gpu_ms_per_step": gpu.step_ms,
            "gpu_util": evidence.gpu.utilisation,
            **gpu.width_evidence,
            "python_share": python,
            **(exchange.figures if evidence.world_size > 1 and exchange is not None else {}),
            **({"device_frees_per_step": allocator.frees_per_step} if allocator is not None else {}),
        },
    )


class _Allocator(NamedTuple):
    """An allocator that gives memory back in each step, and the line that makes it do so, if there is one."""

    advice: str
    hot: HotLine | None
    frees_per_step: float | None  # None if not counted


def _allocator(evidence: Evidence, step_ms: float) -> _Allocator | None:
    """The allocator, if it gives memory back in each step; None if it seldom does, or that is unknown."""
    device = evidence.gpu.times.device if evidence.gpu.times is not None else None
    row = next((row for row in evidence.gpu.memory if row.device == device), None)
    frees = row.frees_per_s * step_ms / 1e3 if row is not None and row.frees_per_s is not None else None
    emptying = evidence.samples.where(lambda node: node.calls("empty_cache"))
    hot = emptying.hottest() if emptying.total >= MIN_SAMPLES else None
    if hot is None and (frees is None or frees < _EVERY_STEP):
        return None
    advice = (
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use batches of similar length or a smaller batch:"
        " memory is fragmented, or nearly full"
    )
    if hot is not None:
        advice = f"leave out torch.cuda.empty_cache() at {at_hot(hot)}: torch reuses freed memory without it"
    return _Allocator(advice, hot, frees)


def _fixes(evidence: Evidence, idle: Interval) -> tuple[str, list[Fix]]:
    """Why a loop launches so much, for people; and the fixes, never none.

    First come fixes of what this very loop does, if they surely gain enough, then all others by their gains.
    """
    debugging = advice_on_debugging("launch_bound", evidence)
    if debugging:
        return "a setting for debugging slows each launch", [without_idling(evidence, debugging, idle)]
    own = {fix: why for why, fix in _of_this_loop(evidence, idle)}
    by_gain = sorted((*own, *_of_any_loop(evidence, idle)), key=lambda fix: -(fix.estimated_speedup or 0.0))
    first = [fix for fix in by_gain if fix in own and (fix.least or 0.0) >= CRITICAL_GAIN]
    fixes = [*first, *(fix for fix in by_gain if fix not in first)] or [Fix("put more work into each launch")]
    if first:
        return own[first[0]], fixes
    if evidence.gpu.launching.is_compiled:
        return "the compiled model's kernels end before the next ones are launched", fixes
    return "many small kernels, launched one at a time", fixes


def _of_this_loop(evidence: Evidence, idle: Interval) -> Iterator[tuple[str, Fix]]:
    """Fixes for peculiarities of this loop, each after a description of the peculiarity for people."""
    found, process = evidence.gpu.launching, evidence.process
    if found.loop is not None and found.calls_cell:
        whole = (
            f"call nn.LSTM or nn.GRU on the whole sequence instead of a cell per time step at {at_hot(found.loop)}:"
            " that takes a few launches"
        )
        fix = without_idling(evidence, whole, idle)
        yield "one recurrent cell is called per time step", fix.without_upper_end  # it is less work as well
    update = fused_fix(evidence, idle.high)
    if update is not None:
        yield "the optimizer updates many tensors separately", update
    # matrix products of lower precision than the parameters: autocast, or casts by hand
    is_mixed = process is not None and process.parameter_dtypes == ["float32"]
    if found.scaler or (is_mixed and {"float16", "bfloat16"}.intersection(process.matmul_dtypes if process else ())):
        passes = evidence.samples.in_steps.share(phase=("forward", "backward")) or 0.0
        share = Interval.around(passes * AUTOCAST_TAKES + found.scaler, passes * TAKES_ERROR).up_to(idle.high)
        without = f"train without autocast{' and GradScaler' if found.scaler else ''}{options(evidence).autocast}"
        fix = without_cost(evidence, f"{without}: on an idle GPU its casts only add launches", share)
        yield "autocast adds one cast per weight", fix


def _of_any_loop(evidence: Evidence, idle: Interval) -> Iterator[Fix]:
    """Fixes that reduce the launches of any loop; the gain of compiling a model differently is unknown."""
    found = evidence.gpu.launching
    larger = larger_batch(evidence, idle)
    if larger is not None:
        yield larger
    if not found.is_compiled:
        at_once = gpu_idle_in(evidence, lambda cell: cell.phase in ("forward", "backward"))  # without the update
        yield without_idling(evidence, options(evidence).compile, at_once)
    for each in evidence.compiler_events("graph_break", of_run=True)[:1]:
        place = at(Place(each.file, each.line, each.function))
        yield Fix(f"let torch.compile take the model whole: its graph breaks at {place} ({each.reason})")
    for each in evidence.compiler_events("no_cuda_graphs", of_run=True)[:1]:
        yield Fix(f"let torch.compile use CUDA graphs: it skips them ({each.reason or 'TORCH_LOGS=cudagraphs'})")
    if found.loop is not None and not found.calls_cell:
        yield Fix(f"replace the loop at {at_hot(found.loop)} by one operation on whole tensors")


def larger_batch(evidence: Evidence, idle: Interval) -> Fix | None:
    """A batch twice as large: steps take as long as now, each with twice as many samples.

    None if the GPU computes for more than half of the time, if its memory would not hold the batch, or if making the
    batch takes long as well. The time of an exchange between ranks does not depend on the batch.
    """
    exchange = evidence.ranks.exchanges.get(evidence.pid) if evidence.world_size > 1 else None
    computing = 1.0 - idle.middle - (exchange.share.middle if exchange is not None else 0.0)
    if idle.low < TRACE or _TIMES * computing > 1.0 or evidence.steps.share_of("data") >= REPORTED:
        return None
    more = max((row.peak_bytes or row.allocated_bytes or 0 for row in evidence.gpu.memory), default=0)
    # a large part of the memory stays free for fragmentation, and for sequences longer than those seen so far
    memory = "its memory use is unknown"
    for gpu in (row.latest for row in evidence.gpu.rows):
        total, then = gpu.memory_total_bytes, (gpu.memory_used_bytes or more) + more
        if total is not None and then > (1.0 - LARGE) * total:
            return None
        memory = f"up to {size_text(then)} of its {size_text(total)} are then in use" if more and total else memory
    loader = evidence.data.loader
    size = loader.facts.batch_size if loader is not None else None
    sizes = f" ({size} -> {_TIMES * size})" if size else ""
    sizes += " in each rank" if exchange is not None else ""
    action = (
        f"{options(evidence).batch} {_TIMES}x as large{sizes}, and again while steps take no longer: a"
        f" step takes as long on this GPU, with {_TIMES}x the samples; {memory}; {CHANGES_TRAINING}"
    )
    surely = _TIMES / max(1.0, _TIMES * (1.0 - idle.low))
    return Fix.gaining(action, Interval(surely, float(_TIMES)), changes_training=True)


def without_idling(evidence: Evidence, action: str, idle: Interval) -> Fix:
    """A fix after which the GPU no longer idles.

    Earlier launches also overlap with more of an exchange between ranks: that time may be saved as well, though no
    rank's GPU then computes for less time than now.
    """
    exchanges = evidence.ranks.exchanges.values() if evidence.world_size > 1 else ()
    most = 1.0 - max((exchange.computing_at_least for exchange in exchanges), default=0.0)
    fix, widest = (without_if_sure(evidence, action, share) for share in (idle.up_to(most), Interval(0.0, most)))
    if not exchanges or fix.gain is None or widest.gain is None:
        return fix
    return fix._replace(gain=Interval(fix.gain.low, widest.gain.high))
