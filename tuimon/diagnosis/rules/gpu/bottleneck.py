"""Rules about the bottleneck of a step, launches or the GPU's work, and about poor use of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tuimon.diagnosis.cells import RUNS, gpu_idle_in, step_cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import GpuSteps
from tuimon.diagnosis.finding import CRITICAL_GAIN, Finding, Fix, bounds, leading, new_finding
from tuimon.diagnosis.line_text import CHANGES_TRAINING, at_hot, idle_part, in_library, times_a_step
from tuimon.diagnosis.rule import Unclaimed
from tuimon.diagnosis.rules.advice import advice_on_debugging, options
from tuimon.diagnosis.rules.compute import fused_fix
from tuimon.diagnosis.rules.model import needless_work
from tuimon.diagnosis.step_model import HALF, TAKES_ERROR, without_cost, without_if_sure
from tuimon.interval import Interval
from tuimon.records import MODEL, Gpu, TraceTaken
from tuimon.session.gpus import GpuMeans
from tuimon.session.progress import saved_by_lower_precision
from tuimon.session.stacks.samples import HotLine
from tuimon.text import at, ms_text, percent, size_text
from tuimon.threshold import LARGE, MIN_SAMPLES, MOST, NEARLY_ALL, REPORTED, SMALL, TINY, Threshold
from tuimon.torch_code import is_cudnn_layer

#: Calls of cudaFree per step. Each waits for all work of the GPU; a training makes none once torch's cache is full:
#: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#implicit-synchronization
_EVERY_STEP = 1.0
AUTOCAST_TAKES = Threshold(
    0.35,
    "share of forward and backward taken by autocast's casts when launches set the pace",
    "measured in bench/launches.py: 0.14 to 0.25 on a CPU, where a cast is not a launch; 0.39 on an H100, of 24 linear"
    " layers with norms",
)
#: Factor by which batches are to grow, step by step: our choice; beyond it, suitable learning rates are unknown.
_TIMES = 2


def launch_bound(evidence: Evidence) -> Finding | None:
    """The GPU keeps up with the CPU during the computation, so it waits for each launch."""
    gpu = evidence.gpu.steps
    if gpu is None or gpu.is_bottleneck or evidence.gpu.awaits_idle_causes:
        return None
    idle = gpu_idle_in(evidence, lambda cell: cell.phase != "data" and cell.doing in RUNS).up_to(
        evidence.gpu.launches_at_most
    )
    if idle.high < LARGE:
        return None
    allocator = _allocator(evidence, gpu.step_ms)
    if allocator is None:  # the launches of backward and of the optimizer are torch's own
        hot, figures = evidence.hottest_in("forward"), {}
        why, fixes = _fixes(evidence, idle)
    else:
        advice, hot, frees = allocator
        why, figures = "torch's allocator waits for it before freeing memory", {"device_frees_per_step": frees}
        fixes = [without_idling(evidence, advice, idle)]
    python = evidence.native_in(*MODEL).share("python")
    if python is not None and python >= LARGE and allocator is None:
        why += f"; the interpreter has {percent(python)} of the CPU time of both passes"
    lead, exchange = gpu.time.lead("backward end"), evidence.exchange
    return new_finding(
        f"GPU idle {idle_part(gpu.idle)} of each step: {why}{in_library(hot)}",
        *fixes,
        cause=None if allocator is None else "allocator",
        share=idle.high,
        at=hot,
        evidence={
            **bounds("gpu_idle", gpu.idle),
            "lead_us": lead.median_us if lead else None,
            "stream_idle_ratio": lead.stream_idle_ratio if lead else None,
            "gpu_ms_per_step": gpu.step_ms,
            "gpu_util": evidence.gpu.utilisation,
            **gpu.width_evidence,
            "python_share": python,
            **(exchange.figures if evidence.world_size > 1 and exchange is not None else {}),
            **figures,
        },
    )


def _allocator(evidence: Evidence, step_ms: float) -> tuple[str, HotLine | None, float | None] | None:
    """The advice if torch's allocator gives memory back in each step, with the line that causes it and the number.

    None if that is rare or unknown; the number is None if it is not counted.
    """
    device = evidence.gpu_time.device if evidence.gpu_time is not None else None
    row = next((row for row in evidence.torch_memory if row.device == device), None)
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
    return advice, hot, frees


def _fixes(evidence: Evidence, idle: Interval) -> tuple[str, list[Fix]]:
    """The reason for a loop's many launches, for people, and at least one fix.

    Fixes for peculiarities of this loop come first if they certainly gain enough, then all others by their gains.
    """
    debugging = advice_on_debugging("launch_bound", evidence)
    if debugging:
        return "a setting for debugging slows each launch", [without_idling(evidence, debugging, idle)]
    own = {fix: why for why, fix in _fixes_of_this_loop(evidence, idle)}
    by_gain = sorted((*own, *_fixes_of_any_loop(evidence, idle)), key=lambda fix: -(fix.estimated_speedup or 0.0))
    first = [fix for fix in by_gain if fix in own and (fix.least or 0.0) >= CRITICAL_GAIN]
    fixes = [*first, *(fix for fix in by_gain if fix not in first)] or [Fix("put more work into each launch")]
    if first:
        return own[first[0]], fixes
    if evidence.gpu.launching.is_compiled:
        return "the compiled model's kernels end before the next ones are launched", fixes
    return "many small kernels, launched one at a time", fixes


def _fixes_of_this_loop(evidence: Evidence, idle: Interval) -> Iterator[tuple[str, Fix]]:
    """Fixes for peculiarities of this loop, each with a description of the peculiarity for people."""
    found, process = evidence.gpu.launching, evidence.process
    if found.loop is not None and found.calls_cell:
        whole = (
            f"call nn.LSTM or nn.GRU on the whole sequence instead of a cell per time step at {at_hot(found.loop)}:"
            " that takes a few launches"
        )
        fix = without_idling(evidence, whole, idle)
        yield "one recurrent cell is called per time step", fix.with_open_gain  # it is less work as well
    update = fused_fix(evidence, idle.high)
    if update is not None:
        yield "the optimizer updates many tensors separately", update
    # matrix products of lower precision than the parameters: autocast, or casts by hand
    is_mixed = process.parameter_dtypes == ["float32"]
    if found.scaler or (is_mixed and {"float16", "bfloat16"}.intersection(process.matmul_dtypes)):
        passes = evidence.samples.in_steps.share(phase=MODEL) or 0.0
        share = Interval.around(passes * AUTOCAST_TAKES + found.scaler, passes * TAKES_ERROR).up_to(idle.high)
        without = f"train without autocast{' and GradScaler' if found.scaler else ''}{options(evidence).autocast}"
        fix = without_cost(evidence, f"{without}: on an idle GPU its casts only add launches", share)
        yield "autocast adds one cast per weight", fix


def _fixes_of_any_loop(evidence: Evidence, idle: Interval) -> Iterator[Fix]:
    """Fixes that reduce the launches of any loop; the gain of compiling a model differently is unknown."""
    found = evidence.gpu.launching
    larger = larger_batch(evidence, idle)
    if larger is not None:
        yield larger
    if not found.is_compiled:
        at_once = gpu_idle_in(evidence, lambda cell: cell.phase in MODEL)  # without the update
        yield without_idling(evidence, options(evidence).compile, at_once)
    for each in evidence.of_run.compiler_events("graph_break")[:1]:
        yield Fix(f"let torch.compile compile the whole model: its graph breaks at {at(each)} ({each.reason})")
    for each in evidence.of_run.compiler_events("no_cuda_graphs")[:1]:
        yield Fix(f"let torch.compile use CUDA graphs: it skips them ({each.reason or 'TORCH_LOGS=cudagraphs'})")
    if found.loop is not None and not found.calls_cell:
        yield Fix(f"replace the loop at {at_hot(found.loop)} with one operation on whole tensors")


def larger_batch(evidence: Evidence, idle: Interval) -> Fix | None:
    """The fix of a batch twice as large, with which a step takes as long as now.

    None if the GPU computes for more than half of the time, if its memory would not hold the batch, or if making the
    batch takes long as well. The time of an exchange between ranks does not depend on the batch.
    """
    exchange = evidence.exchange
    computing = 1.0 - idle.middle - (exchange.share.middle if exchange is not None else 0.0)
    if idle.low < TINY or _TIMES * computing > 1.0 or evidence.phases.share_of("data") >= REPORTED:
        return None
    more = max((row.peak_bytes or row.allocated_bytes or 0 for row in evidence.torch_memory), default=0)
    # a large part of the memory stays free for fragmentation, and for sequences longer than those seen so far
    memory = "its memory use is unknown"
    for gpu in evidence.gpu.rows:
        total, used = gpu.latest.memory_total_bytes, gpu.figures.memory_used_bytes or more
        then = used + (more or used)
        if total is not None and then > (1.0 - LARGE) * total:
            return None
        memory = f"at most {size_text(then)} of its {size_text(total)} are then in use" if then and total else memory
    loader = evidence.data.loader
    size = loader.facts.batch_size if loader is not None else None
    sizes = f" ({size} -> {_TIMES * size})" if size else ""
    sizes += " in each rank" if exchange is not None else ""
    action = (
        f"{options(evidence).batch} {_TIMES}x as large{sizes}, and keep doubling it while steps get no slower:"
        f" on this GPU, a step takes as long with {_TIMES}x the samples; {memory}; {CHANGES_TRAINING}"
    )
    surely = _TIMES / max(1.0, _TIMES * (1.0 - idle.low))
    return Fix.with_gain(action, Interval(surely, float(_TIMES)), changes_training=True)


def without_idling(evidence: Evidence, action: str, idle: Interval) -> Fix:
    """A fix after which the GPU no longer idles.

    Earlier launches also overlap with more of an exchange between ranks: that time may be saved as well, though no
    rank's GPU then computes for less time than now.
    """
    exchanges = evidence.exchanges.values() if evidence.world_size > 1 else ()
    most = 1.0 - max((exchange.computing_at_least for exchange in exchanges), default=0.0)
    fix, widest = (without_if_sure(evidence, action, share) for share in (idle.up_to(most), Interval(0.0, most)))
    if not exchanges or fix.gain is None or widest.gain is None:
        return fix
    return fix._replace(gain=Interval(fix.gain.low, widest.gain.high))


_HALF = {"float16", "bfloat16"}
_CUDNN_TF32 = "torch.backends.cudnn.allow_tf32 = True"
#: Compute capability of the first GPUs with tensor cores, and of the first whose tensor cores take TF32 and bfloat16:
#: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#features-and-technical-specifications
_VOLTA, _AMPERE = 7.0, 8.0
LITTLE_POWER = Threshold(
    0.30,
    "part of its power limit below which a busy GPU at full clock most likely uses few of its SMs",
    "measured in bench/gpu on an H100: 0.19 with 1 % of the SMs active, 0.24 with 10 %, 0.33 with 28 %, 0.54 with 54 %",
)
OTHER_TRAFFIC = Threshold(
    0.3,
    "least part of the memory's peak bandwidth that kernels use if they fill the SMs without multiplying matrices",
    "our choice: a third of the 0.8 that such kernels can reach"
    " (https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html#profiling-metrics)",
)


def keeps_busy(unclaimed: Unclaimed) -> Finding | None:
    """The GPU always has something to do, which is right if it works as well as it can.

    It may be waiting itself: for other ranks, or for work that events on one stream do not show.
    """
    evidence, gpu = unclaimed.evidence, unclaimed.evidence.gpu.steps
    if gpu is None:
        return None
    if gpu.contradiction is not None:
        return _contradicted(gpu.contradiction, evidence.gpu.trace)
    waits = any(each.rule == "straggler_rank" and (each.share_of_step or 0.0) >= LARGE for each in unclaimed.found)
    at_work = (
        {row.run_pids.get(each.pid) for each in row.holders if each.computing.high >= TINY} for row in evidence.gpu.rows
    )
    if not gpu.is_bottleneck or waits or max((len(ranks - {None}) for ranks in at_work), default=0) > 1:
        return None  # other findings say that it waits for one rank, or is shared by several
    heaviest = max(gpu.phases, key=lambda name: gpu.phases[name].span)
    hot = evidence.hottest_in("forward") if heaviest == "forward" else None
    runs = times_a_step(heaviest, evidence.times_run(heaviest))
    most = f"mostly {runs} ({ms_text(gpu.phases[heaviest].span * gpu.step_ms)} a step)"
    use = _use_of(unclaimed, gpu, most)
    busy = "all" if gpu.idle.high < 0.005 else f"at least {percent(1 - gpu.idle.high)} of"
    return new_finding(
        f"GPU busy {busy} the time, {use.headline}",
        *use.fixes,
        severity="info" if use.cause is not None else "benign",
        cause=use.cause,
        share=1.0 - gpu.idle.high,
        at=hot,
        evidence={
            "gpu_ms_per_step": gpu.step_ms,
            "gpu_util": evidence.gpu.utilisation,
            **use.evidence,
            "gpu_idle_at_most": gpu.idle.high,
        },
    )


def compute_bound(evidence: Evidence) -> Finding | None:
    """Work that a GPU at the bottleneck need not do; not with several ranks, whose GPUs may wait for each other."""
    gpu = evidence.gpu.steps
    if gpu is None or not gpu.is_bottleneck or evidence.world_size > 1:
        return None
    return leading(needless_work(evidence))


def _use_of(unclaimed: Unclaimed, gpu: GpuSteps, most: str) -> Finding:
    """How well a busy GPU is used, and the cause if it could achieve more; ``most``: its main work, in words."""
    evidence, is_alone = unclaimed.evidence, unclaimed.evidence.world_size < 2
    exchange = evidence.exchange
    computing = 1.0 if is_alone else 1.0 - exchange.share.high if exchange is not None else 0.0
    if evidence.gpu.counted and (use := _bad_use(evidence, gpu, *evidence.gpu.counted[0], computing)) is not None:
        return use
    if gpu.untimed >= SMALL:
        whose = "" if is_alone else ", such as NCCL's,"
        part = f"at least {percent(gpu.untimed)} in work that its events do not time"
        how = f"{part}, on other streams{whose} or in CUDA graphs"
        return new_finding(how, "run tuimon trace: it shows the kernels of all streams", cause="other_streams")
    if not is_alone:  # it may only be waiting for the others
        waits = idle_part(exchange.share) if exchange is not None else "an unknown part"
        sign = f"; it {power}, a weak sign that it mostly waits" if (power := _little_power(gpu)) else ""
        traced = "run tuimon trace: if NCCL kernels fill backward, communicate less; otherwise the loop is fine"
        is_fine = gpu.traced is not None and exchange is not None and exchange.share.high < REPORTED
        return new_finding(
            f"{most}; {waits} of that is waiting for the other ranks{sign}",
            "leave the loop as it is" if is_fine else traced,
            evidence=exchange.figures if exchange is not None else {},
        )
    unused = next((each.best for each in unclaimed.found if each.rule == low_precision_unused.__name__), None)
    lower = "lower precision"
    for card, means in evidence.gpu.counted[:1]:
        is_open = means.tensor_ratio is None and card.compute_capability and evidence.process.parameter_dtypes
        way = _lower_precision(evidence, card) if is_open else None  # perhaps its tensor cores idle
        lower += f" ({way.removeprefix('use ')})" if way is not None else ""
    had = {lower: unused or _uses_half(evidence), "torch.compile": evidence.gpu.launching.is_compiled}
    faster = ", ".join((*(each for each, is_so in had.items() if not is_so), "a smaller model", "a faster GPU"))
    how = "as it should be" if unused is None else "its tensor cores idle"
    return new_finding(f"{how}: {most}", unused or "leave the loop as it is", f"only these make it faster: {faster}")


def _little_power(gpu: GpuSteps) -> str:
    """Words for little power at full clock, a weak sign of little work if SMs are not counted (before Hopper)."""
    ratio = gpu.power_ratio
    if gpu.sm_ratio is not None or ratio is None or ratio >= LITTLE_POWER or (gpu.clock_ratio or 0.0) < NEARLY_ALL:
        return ""
    return f"draws {percent(ratio)} of its power limit at full clock"


def _bad_use(evidence: Evidence, gpu: GpuSteps, card: Gpu, means: GpuMeans, computing: float) -> Finding | None:
    """Kernels too small to fill the GPU, limited by its memory, or not for tensor cores; None if counters show none.

    ``computing``: the least share of the time in which it does not wait for other ranks: kernels of NCCL, which wait,
    keep few SMs busy.
    """
    compiled = "" if evidence.gpu.launching.is_compiled else "torch.compile(model), "
    larger = f"use fewer, larger kernels: {compiled}whole tensors instead of loops over their parts"
    if means.sm_ratio is None:  # before Hopper, GPUs do not count it
        power = _little_power(gpu)
        if not power or computing < 1.0:
            return None
        return new_finding(
            f"but {power}: a weak sign of kernels too small to fill it",
            "run tuimon trace: it lists the kernels that take the time",
            larger,
            cause="low_power",
            power_w=means.power_w,
            power_limit_w=card.power_limit_w,
        )
    figures = {"sm_ratio": means.sm_ratio, "tensor_ratio": means.tensor_ratio, "dram_ratio": means.dram_ratio}
    fused = f"fuse kernels, so that each tensor is read less often: {compiled}fused=True for the optimizer"
    if means.dram_ratio is not None and means.dram_ratio >= MOST:
        halved = Fix("halve the bytes: torch.autocast('cuda', torch.bfloat16)", changes_training=True)
        how = f"bound by its memory: {percent(means.dram_ratio)} of its peak traffic"
        return new_finding(
            how, fused, None if _uses_half(evidence) else halved, cause="memory_traffic", evidence=figures
        )
    if means.sm_ratio < MOST * computing:  # "likely ineffective", says NVIDIA's manual, which the page links
        batch = larger_batch(evidence, Interval.around(1.0 - means.sm_ratio))
        how = f"but with only {percent(means.sm_ratio)} of its SMs: its kernels are too small to fill it"
        most = batch.with_upper_bound(batch.gain and batch.gain.high) if batch is not None else None
        return new_finding(how, larger, most, cause="few_sms", evidence=figures)
    may_use_them = _uses_half(evidence) or evidence.process.tf32
    if not may_use_them or means.tensor_ratio is None or means.tensor_ratio >= SMALL * computing:
        return None
    how = f"but its tensor cores work only {percent(means.tensor_ratio)} of it: most of its kernels do not use them"
    traced = "run tuimon trace: it lists the kernels that take the time; matrices need sizes that are multiples of 8"
    return new_finding(how, traced, fused, cause="few_products", evidence=figures)


def _uses_half(evidence: Evidence) -> bool:
    return not _HALF.isdisjoint(evidence.process.matmul_dtypes + evidence.process.parameter_dtypes)


def low_precision_unused(evidence: Evidence) -> Finding | None:
    """The GPU multiplies matrices in full float32 while its tensor cores do nothing.

    At least half of the products' time is saved: TF32 takes a seventh of the time for large ones on an A100
    (https://docs.pytorch.org/docs/stable/notes/cuda.html). If the CPU sets the pace, its own work stays. On a GPU that
    counts neither tensor cores nor SMs, types and settings show that the products do not use them.
    """
    gpu = evidence.gpu.steps
    if gpu is None or not evidence.gpu.counted:
        return None
    card, means = evidence.gpu.counted[0]
    tensor, products, action = means.tensor_ratio, _products(evidence, gpu, means), _lower_precision(evidence, card)
    by_flops = min(products.high, saved_by_lower_precision(evidence.view.of(evidence.pid)))
    if action is None or (means.dram_ratio or 0.0) >= MOST:
        return None
    if tensor is not None:
        if tensor >= TINY * products.high:
            return None
        how = f"{percent(products.high)} of each step, its tensor cores for {100 * tensor:.1f} %"
    elif not _avoids_tensor_cores(evidence, card):
        return None
    else:
        part = f"at least {percent(by_flops)}" if by_flops >= TINY else "an unknown part"
        sign = f" (it {power}, a weak sign of few)" if (power := _little_power(gpu)) else ""
        types = " and ".join(sorted(evidence.gpu.product_types))
        how = f"up to {percent(products.high)} of each step, {part} in products of {types}{sign}"
    gone = Interval(max(products.low * HALF, by_flops) - gpu.idle.high, products.high)
    if not gpu.is_bottleneck and evidence.gpu.waits is not None:
        gone = gone.up_to(step_cells(evidence).where(doing={"sync", "copy"}).interval.high)
    if gone.high < REPORTED or (evidence.gpu.awaits_idle_causes and not gpu.is_bottleneck):
        return None
    fix = without_if_sure(evidence, f"{action}, and sizes that are multiples of 8", gone, changes_training=True)
    return new_finding(
        f"GPU computes for {how}: {'its tensor cores idle' if tensor is None else 'lower precision is not used'}",
        fix.with_open_gain if fix.least else fix,
        severity="warning" if fix.least else "info",
        share=gone.high,
        tensor_ratio=tensor,
        sm_ratio=means.sm_ratio,
        dram_ratio=means.dram_ratio,
        power_w=means.power_w if tensor is None else None,
        compute_capability=card.compute_capability,
    )


def _lower_precision(evidence: Evidence, card: Gpu) -> str | None:
    """How to multiply with tensor cores; None if settings or types allow it already, or the GPU has none."""
    process, slow = evidence.process, _slow_types(card)
    if not slow or any(used and slow.isdisjoint(used) for used in (process.parameter_dtypes, process.matmul_dtypes)):
        return None
    if "bfloat16" in slow:
        return "use torch.autocast('cuda', torch.float16) with torch.amp.GradScaler('cuda')"
    off = {"torch.set_float32_matmul_precision('high')": not process.tf32, _CUDNN_TF32: process.cudnn_tf32 is False}
    how = " and ".join(setting for setting, is_off in off.items() if is_off)
    return f"use {how} (TF32), or torch.autocast('cuda', torch.bfloat16)" if how else None


def _slow_types(card: Gpu) -> set[str]:
    """The types that a GPU multiplies without its tensor cores, float32 as far as it is not rounded to TF32."""
    capability = card.compute_capability or _AMPERE
    return set() if capability < _VOLTA else {"float32", "bfloat16"} if capability < _AMPERE else {"float32"}


def _avoids_tensor_cores(evidence: Evidence, card: Gpu) -> bool:
    """True if the types of all products show it, and for float32 the settings.

    Layers of cuDNN, convolutions and recurrent ones, have a setting of their own, which counts if samples show a large
    part of forward in them: they use TF32 by default.
    """
    types, slow, forward = evidence.gpu.product_types, _slow_types(card), evidence.samples.where(phase="forward")
    if card.compute_capability is None or not types or not types <= slow:
        return False
    in_cudnn = forward.part(lambda node: any(is_cudnn_layer(each.file, each.function) for each in node.frames))
    rounds = evidence.process.cudnn_tf32 if in_cudnn >= LARGE else evidence.process.tf32
    return "bfloat16" in slow or rounds is False


def _products(evidence: Evidence, gpu: GpuSteps, means: GpuMeans) -> Interval:
    """The share of each step in which SMs multiply matrices in float32 while tensor cores do nothing.

    Other kernels that fill the SMs also fill half of their warps, or use much of the memory's bandwidth. Worked
    example: SMs are active for 86 % of the step, with 14 % of all warps, and the memory is 10 % busy: other kernels
    take at most 0.1 / 0.3 of the step. With other ranks or programs, none of the activity is sure to be the training's
    products.
    """
    waits = evidence.exchange.share.low if evidence.exchange is not None else 0.0
    active = min(1.0 - gpu.idle.low - waits, means.sm_ratio if means.sm_ratio is not None else 1.0)
    if means.occupancy_ratio is None or means.dram_ratio is None or evidence.world_size > 1 or evidence.gpu.is_shared:
        return Interval(0.0, active)
    others = max(means.occupancy_ratio / MOST, means.dram_ratio / OTHER_TRAFFIC)
    return Interval(max(0.0, active - others), active)


def small_batch(evidence: Evidence) -> Finding | None:
    """The GPU has room in time and in memory: a larger batch would use both.

    Kept only if nothing else explains an idle GPU.
    """
    known = evidence.gpu.counted
    figures = [
        (means.util_ratio, means.memory_used_bytes / gpu.memory_total_bytes)
        for gpu, means in known
        if means.util_ratio is not None and means.memory_used_bytes is not None and gpu.memory_total_bytes
    ]
    if not evidence.phases or evidence.gpu.awaits_idle_causes or not known:
        return None
    if len(figures) < len(evidence.gpu.rows) or any(max(each) >= MOST for each in figures):
        return None
    (gpu, means), (used, filled) = known[0], figures[0]
    larger = larger_batch(evidence, Interval.around(1.0 - used).up_to(evidence.gpu.launches_at_most))
    if larger is None:
        return None
    return new_finding(
        f"GPU {gpu.index} is used {percent(used)} of the time, and {percent(filled)} of its memory: room for a"
        " larger batch",
        larger._replace(gain=larger.gain and Interval(1.0, larger.gain.high)),
        severity="info",
        gpu_util=used,
        memory_ratio=filled,
        sm_ratio=means.sm_ratio,
        occupancy_ratio=means.occupancy_ratio,
    )


def _contradicted(found: tuple[Interval, Interval], trace: TraceTaken | None) -> Finding:
    """Events and NVML contradict each other, so neither is trusted. A trace is, although its profiler slows the CPU."""
    events, counters = found
    fix, traced = "run tuimon trace to see which is right: queued work may wait for a copy or another stream", None
    if trace is not None and trace.gpu_span_ns and trace.gpu_busy_ns is not None:
        traced = 1.0 - trace.gpu_busy_ns / trace.gpu_span_ns
        fix = f"trust the trace: the GPU idled {percent(traced)} of the traced steps, and no more without the profiler"
    return new_finding(
        f"GPU idle time unknown: CUDA events say at most {percent(events.high)}, NVML's utilisation at least"
        f" {percent(counters.low)}",
        fix,
        severity="info",
        gpu_idle_in_trace=traced,
        gpu_idle_at_most_by_events=events.high,
        gpu_idle_at_least_by_nvml=counters.low,
    )
