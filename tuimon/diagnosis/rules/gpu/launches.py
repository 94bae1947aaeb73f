"""The rule about launches that set the pace: the GPU waits for the CPU to come with more work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.diagnosis.evidence.devices import least_utilisation
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.samples import Launching
from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.diagnosis.finding import CRITICAL_GAIN, Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import GPU_TIMES, Rule
from tuimon.diagnosis.rules.compute.optimizer import FUSED_OF_SINGLE, FUSED_TAKES, fused_fix
from tuimon.diagnosis.rules.gpu.pace import IDLE_BOUNDS
from tuimon.diagnosis.rules.owner_options import advice_on_debugging
from tuimon.diagnosis.step_model.edits import HALF, TAKES_ERROR
from tuimon.diagnosis.step_model.measured import without_cost
from tuimon.diagnosis.threshold import LARGE, MIN_SAMPLES, MOST, REPORTED, SMALL, TRACE, Threshold
from tuimon.diagnosis.words import CHANGES_TRAINING, at, at_hot, idle_part, in_library
from tuimon.records import Gpu, Place, Process
from tuimon.session.rows import HotLine, LoaderRow, TorchMemoryRow
from tuimon.session.stacks.samples import Samples
from tuimon.text import number_text, size_text

#: The phases that launch a training's work.
COMPUTE = ("forward", "backward", "optimizer")
#: Calls of cudaFree a step; each waits for all work of the GPU, and once its cache has filled a training makes none:
#: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#implicit-synchronization
_EVERY_STEP = 1.0
AUTOCAST_TAKES = Threshold(
    0.35,
    "part of forward and backward that autocast's casts take where launches set the pace",
    "measured in bench/launches.py: 0.14 to 0.25 on a CPU, where a cast is no launch; 0.39 on an H100, of 24 linear"
    " layers with norms",
)
#: Times as large that a batch is advised to be, step by step: our choice; learning rates that fit are not known beyond.
_TIMES = 2

#: How the owner of the loop names what it can change.
_COMPILE = {
    None: "use torch.compile(model, mode='reduce-overhead') or CUDA graphs: one launch instead of many",
    "transformers": "set torch_compile=True, torch_compile_mode='reduce-overhead' in TrainingArguments: one launch"
    " instead of many",
    "lightning": "call torch.compile(model, mode='reduce-overhead') before trainer.fit(): one launch instead of many",
}
_BATCH = {
    None: "use a batch",
    "transformers": "make per_device_train_batch_size",
    "lightning": "make batch_size of the DataLoader",
}
_AUTOCAST = {
    None: "",
    "transformers": " (fp16=False, bf16=False in TrainingArguments)",
    "lightning": " (precision='32-true' in the Trainer)",
}
#: Why the GPU waits, unless the loop does something that others do not.
_CAUSE = "many small kernels, launched one at a time"
_OF_COMPILED = "the compiled model's kernels end before the next ones are launched"


class LaunchFixes(NamedTuple):
    """Why a loop launches so much, for people, where it does what others do not; and the fixes, never none."""

    why: str
    fixes: list[Fix]


def launch_fixes(evidence: Evidence, idle: Interval) -> LaunchFixes:
    """First what mends what this very loop does, where that surely gains, then all others by their gains."""
    debugging = advice_on_debugging("launch_bound", evidence)
    if debugging:
        return LaunchFixes("a setting for debugging slows each launch", [without_idling(evidence, debugging, idle)])
    found = evidence.launching
    own = {fix: why for why, fix in _of_this_loop(evidence, found, idle)}
    by_gain = sorted((*own, *_of_any_loop(evidence, found, idle)), key=lambda fix: -(fix.estimated_speedup or 0.0))
    first = [fix for fix in by_gain if fix in own and (fix.least or 0.0) >= CRITICAL_GAIN]
    fixes = [*first, *(fix for fix in by_gain if fix not in first)] or [Fix("put more work into each launch")]
    return LaunchFixes(own[first[0]] if first else "", fixes)


def _of_this_loop(evidence: Evidence, found: Launching, idle: Interval) -> Iterator[tuple[str, Fix]]:
    if found.cells is not None:
        whole = (
            f"call nn.LSTM or nn.GRU on the whole sequence instead of a cell per time step at {at_hot(found.cells)}:"
            " that takes a few launches"
        )
        yield (
            "one recurrent cell is called per time step",
            without_idling(evidence, whole, idle).without_upper_end,
        )  # less work as well
    update = fused_fix(evidence, idle.high)
    if update is not None:
        yield "the optimizer updates many tensors separately", update
    if found.scaler > 0.0 or _is_autocast(evidence.process):
        yield "autocast adds one cast per weight", _without_autocast(evidence, found, idle)


def _is_autocast(process: Process | None) -> bool:
    """True if its matrix products give half precision of parameters in full: autocast, or casts by hand."""
    if process is None or process.parameter_dtypes != ["float32"]:
        return False
    return bool({"float16", "bfloat16"}.intersection(process.matmul_dtypes))


def _without_autocast(evidence: Evidence, found: Launching, idle: Interval) -> Fix:
    """A GradScaler belongs to autocast: a cast for each weight and input, and its own checks."""
    steps = evidence.samples.in_steps
    passes = steps.share(phase=("forward", "backward")) or 0.0
    share = Interval.around(passes * AUTOCAST_TAKES + found.scaler, passes * TAKES_ERROR).up_to(idle.high)
    option = _AUTOCAST[found.owner]
    if not found.scaler:
        action = f"train without autocast{option}: on an idle GPU its casts only add launches"
        return without_cost(evidence, action, share)
    action = (
        f"train without autocast and GradScaler{option}: on an idle GPU they only add launches; bfloat16 at least needs"
        " no scaler"
    )
    return without_cost(evidence, action, share)


def _of_any_loop(evidence: Evidence, found: Launching, idle: Interval) -> Iterator[Fix]:
    larger = larger_batch(evidence, idle)
    if larger is not None:
        yield larger
    gpu = evidence.gpu_steps
    if gpu is not None and not found.is_compiled and not found.is_graphed:  # the update is launched as before
        yield without_idling(evidence, _COMPILE[found.owner], gpu.idle_in("forward", "backward"))
    yield from _of_compiled(evidence)
    if found.loop is not None and found.cells is None:
        yield Fix(f"replace the loop at {at_hot(found.loop)} by one operation on whole tensors")


def _of_compiled(evidence: Evidence) -> Iterator[Fix]:
    """A model that is compiled in pieces, or without CUDA graphs where these were wanted; what is gained is unknown."""
    breaks = evidence.compiler_events_of_run("graph_break")
    if breaks:
        first, number = breaks[0], len({(each.file, each.line) for each in breaks})
        place = at(Place(first.file, first.line, first.function))
        more = f", and {number - 1} more" if number > 1 else ""
        yield Fix(f"let torch.compile take the model whole: its graph breaks at {place} ({first.reason}){more}")
    without = evidence.compiler_events_of_run("no_cuda_graphs")
    if without:
        yield Fix(f"let torch.compile use CUDA graphs: it skips them ({without[0].reason or 'TORCH_LOGS=cudagraphs'})")


def larger_batch(evidence: Evidence, idle: Interval) -> Fix | None:
    """A batch twice as large: steps take as long as now, each with more samples.

    None where the GPU is more than half busy, its memory would not hold it, or making the batch takes long as well.
    """
    if idle.low < TRACE or _TIMES * (1.0 - idle.middle) > 1.0 or evidence.share_of("data") >= REPORTED:
        return None
    holds, room = _memory(evidence)
    # a large part of the memory stays free for fragments, and for a length that is longer than those seen
    if holds is not None and room is not None and holds * _TIMES > (1.0 - LARGE) * room:
        return None
    size, per_s = _batch_size(evidence.loader), evidence.samples_per_s
    sizes = f" ({size} -> {_TIMES * size})" if size else ""
    rates = f" ({number_text(per_s)} -> {number_text(_TIMES * per_s)} a second)" if per_s else ""
    memory = (
        f"torch holds {size_text(holds)}, then up to {size_text(_TIMES * holds)} of {size_text(room)}"
        if holds and room
        else "its memory use is unknown"
    )
    action = (
        f"{_BATCH[evidence.launching.owner]} {_TIMES}x as large{sizes}, and again while steps take no longer: a step"
        f" takes as long on this GPU, with {_TIMES}x the samples{rates}; {memory}; {CHANGES_TRAINING}"
    )
    surely = _TIMES / max(1.0, _TIMES * (1.0 - idle.low))
    return Fix.gaining(action, Interval(surely, float(_TIMES)), changes_training=True)


def _batch_size(loader: LoaderRow | None) -> int | None:
    """Samples of a batch, as the loader was made, or as its batches show."""
    if loader is None or loader.facts.batch_size is not None:
        return loader.facts.batch_size if loader is not None else None
    return round(loader.batches.mean_samples) if loader.batches is not None and loader.batches.mean_samples else None


def _memory(evidence: Evidence) -> tuple[int | None, int | None]:
    """Bytes that torch has allocated on its GPU, and those of the GPU that nobody else holds."""
    held = [row.peak_bytes or row.allocated_bytes for row in evidence.torch_memory]
    rooms = [_room(gpu.latest, evidence.torch_memory) for gpu in evidence.gpus]
    most = max((held_bytes for held_bytes in held if held_bytes), default=None)
    return most, min((room for room in rooms if room), default=None)


def _room(gpu: Gpu, rows: Iterable[TorchMemoryRow]) -> int | None:
    own = sum(row.reserved_bytes or 0 for row in rows if row.uuid in (gpu.uuid, None))
    others = max(0, gpu.memory_used_bytes - own) if gpu.memory_used_bytes is not None and own else 0
    return gpu.memory_total_bytes - others if gpu.memory_total_bytes else None


def without_idling(evidence: Evidence, action: str, idle: Interval) -> Fix:
    """A fix by which the GPU idles no more; an end within the error of its bound, or next to all, is not known."""
    if idle.high >= 1.0 - TRACE:
        return Fix(action)
    fix = without_cost(evidence, action, idle)
    return fix if idle.low >= TRACE or fix.gain is None else fix.by_up_to(fix.gain.high)


def launch_bound(evidence: Evidence) -> Finding | None:
    """The GPU keeps up with the CPU within the computation: it waits for each launch."""
    gpu = evidence.gpu_steps
    if gpu is None or gpu.is_bottleneck or evidence.awaits_idle_causes:
        return None
    followed = [name for name in COMPUTE if _is_followed(evidence, gpu, name)]
    if gpu.idle_in(*followed).high < LARGE:
        return None
    idle = gpu.idle_in(*COMPUTE, "other").up_to(evidence.launches_at_most)
    if idle.high < LARGE:
        return None
    allocator = _allocator_waits(evidence.torch_memory, evidence.samples, gpu.step_ms, gpu.time.device)
    if allocator is None:  # what backward and optimizer launch is torch's own
        hot = evidence.hottest_in("forward") if "forward" in followed else None
        why, fixes = launch_fixes(evidence, idle)
        why = why or (_OF_COMPILED if evidence.launching.is_compiled else _CAUSE)
    else:
        hot, why = allocator.hot, "torch's allocator waits for it to give memory back"
        fixes = [without_idling(evidence, _allocator_advice(allocator, [at_hot(hot)] if hot else []), idle)]
    part = idle_part(gpu.idle)
    return Finding(
        cause=None if allocator is None else "allocator",
        headline=f"GPU idle {part} of each step: {why}{in_library(hot)}",
        fixes=tuple(fixes),
        share_of_step=idle.high,
        where=(hot.place,) if hot else (),
        evidence=_launch_figures(evidence, gpu, idle, allocator),
    )


def _launch_figures(
    evidence: Evidence, gpu: GpuSteps, idle: Interval, allocator: _AllocatorWaits | None
) -> dict[str, float | int | str | None]:
    lead = gpu.lead("backward end")
    return {
        **gpu.idle.as_evidence("gpu_idle"),
        "lead_us": lead.median_us if lead else None,
        "stream_idle_ratio": lead.stream_idle_ratio if lead else None,
        "gpu_ms_per_step": gpu.step_ms,
        "gpu_util": least_utilisation(evidence.gpus),
        **gpu.width_evidence,
        **({"device_frees_per_step": allocator.frees_per_step} if allocator is not None else {}),
    }


def _is_followed(evidence: Evidence, gpu: GpuSteps, name: str) -> bool:
    """True if a phase ends with the GPU close behind the CPU, and is as long on the one as on the other."""
    phase, on_cpu = gpu.phases.get(name), evidence.phase(name)
    if phase is None or phase.ms <= 0 or not gpu.keeps_up(name):
        return False
    if on_cpu is None or on_cpu.ms_per_step is None or on_cpu.estimated:
        return True  # its length on the CPU rests on samples
    return abs(phase.ms - on_cpu.ms_per_step) <= LARGE * max(phase.ms, on_cpu.ms_per_step)


class _AllocatorWaits(Struct, frozen=True, gc=False):
    """Why the allocator gives memory back, and the line that makes it do so, where there is one."""

    why: Literal["empty_cache", "no_cache", "fragmentation"]
    frees_per_step: float | None  # None where they are not counted
    hot: HotLine | None


def _allocator_waits(
    memory: Iterable[TorchMemoryRow], samples: Samples, step_ms: float, device: int
) -> _AllocatorWaits | None:
    """Waits for the allocator; None where memory is given back in few steps, or that is unknown."""
    row = next((row for row in memory if row.device == device), None)
    emptying = samples.where(lambda node: node.calls("empty_cache"))
    hot = emptying.hottest()
    frees = row.frees_per_s * step_ms / 1e3 if row is not None and row.frees_per_s is not None else None
    if hot is not None and emptying.total >= MIN_SAMPLES:
        return _AllocatorWaits("empty_cache", frees, hot)
    if row is not None and row.allocated_bytes == 0:  # with caching, the model alone would be counted
        return _AllocatorWaits("no_cache", None, None)
    return _AllocatorWaits("fragmentation", frees, hot) if frees is not None and frees >= _EVERY_STEP else None


def _allocator_advice(waits: _AllocatorWaits, places: Sequence[str]) -> str:
    """The fix; ``places``: the line that empties the cache, for people."""
    if waits.why == "empty_cache":
        return f"leave out torch.cuda.empty_cache() at {places[0]}: torch reuses freed memory without it"
    if waits.why == "no_cache":
        return "unset PYTORCH_NO_CUDA_MEMORY_CACHING: torch then reuses freed memory instead of returning it"
    return (
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use batches of similar length or a smaller batch:"
        " memory is fragmented, or nearly full"
    )


LAUNCH_BOUND = Rule(
    title="Launches set the pace",
    judge=launch_bound,
    explanation=(
        "The GPU is done before the CPU launches more work: small kernels, or too much Python between them. It rests on"
        " GPU times: forward, backward or optimizer end with launches hardly ahead, and take the same time on the GPU"
        " as on the CPU. The GPU's idle time there lies between bounds: at most the time in which the CPU is still"
        " launching, at most the CPU time of the threads that launch, and at most the time that NVML's utilisation"
        " leaves. With the cause allocator, torch returns memory to the driver in each step, which waits for the GPU."
    ),
    needs=(GPU_TIMES,),
    thresholds=(
        LARGE,
        TRACE,
        MOST,
        SMALL,
        AUTOCAST_TAKES,
        TAKES_ERROR,
        FUSED_OF_SINGLE,
        FUSED_TAKES,
        HALF,
        REPORTED,
        *IDLE_BOUNDS,
    ),
    causes=("allocator",),
    contradicts_order=True,
)
