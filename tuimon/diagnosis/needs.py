"""The kinds of evidence that rules need, each with the reason that people read if it is missing."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tuimon.diagnosis.evidence.course import COMPARABLE_WINDOWS, JUMP_AT_ONCE, JUMP_LASTS
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import (
    DEVICE_COPIES,
    GAPS,
    GPU_CLOCK_WAIT_S,
    MIN_STEPS,
    SLOW_PCIE,
    SMALL_PINNED_BYTES,
    has_enough_steps,
)
from tuimon.diagnosis.evidence.lines import is_collecting
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD, TOGETHER_MS
from tuimon.text import percent
from tuimon.threshold import MIN_SAMPLES, REPORTED, Threshold


class Need(Struct, frozen=True):
    """A kind of evidence. ``missing`` returns the reason for people; None if it is there, or if its absence is normal.

    A run may rightly lack some evidence, such as a second rank: then there is nothing to judge or report.
    """

    what: str
    missing: Callable[[Evidence], str | None] = lambda _: None
    reported_as: str | None = None  # if set, named as missing in place of the rules that need it
    thresholds: tuple[Threshold, ...] = ()  # by which it is judged to be there, or what it shows


#: Added if samples show that a model runs: in such a loop no hook sees the end of a step.
_UNMARKED = (
    ", although a model runs: in a loop without DataLoader, backward and optimizer, call tuimon.step() once a step"
)


def _no_steps(evidence: Evidence) -> str | None:
    if evidence.phases:
        return None if evidence.phases.trains else "the steps have no batch, backward pass or update that was seen"
    if evidence.stats.total:
        return "no step that has ended was timed"
    if evidence.process.markers:
        runs_model = evidence.samples.phases["forward"] > 0
        return f"no step has ended{_UNMARKED if runs_model else ''}"
    found, samples = "too few samples to find a training loop", evidence.samples.total
    if samples >= MIN_SAMPLES:  # the rule of three: with three samples expected, at least one comes in 95 of 100 cases
        found = (
            f"none of {samples} samples is in backward or an update: if the process trains, these take less than"
            f" {percent(3 / samples)} of its time (--inject would measure them)"
        )
    reason = evidence.process.markers_reason
    return f"no markers{f': {reason}' if reason is not None else ' came'}; and {found}"


def _no_step_times(evidence: Evidence) -> str | None:
    if not evidence.phases:
        return None  # STEPS reports that
    if evidence.phases.inferred:
        return "no markers: shares are inferred from stacks, step times are not known"
    if len(evidence.course.rows) < COMPARABLE_WINDOWS:
        return "the run is too short to compare its end with its beginning"
    return None


def _no_samples(evidence: Evidence) -> str | None:
    if evidence.stacks.latest_s is not None:
        return None
    notice, missing = evidence.view.session.notices.get("stacks"), "no stack samples"
    if notice is None:
        return missing
    return notice.message if notice.message.startswith(missing) else f"{missing}: {notice.message}"


def _no_gpu_times(evidence: Evidence) -> str | None:
    if evidence.gpu.is_used is False or _has_gpu_times(evidence):
        return None
    if not evidence.process.markers:
        return "no GPU events: no markers came"
    return "no GPU events yet, or none that could be timed (captured graphs, other streams, another accelerator)"


def _has_gpu_times(evidence: Evidence) -> bool:
    return (time := evidence.gpu_time) is not None and has_enough_steps(time.steps, time.timed_s)


def _no_gpu_counters(evidence: Evidence) -> str | None:
    if evidence.gpu.is_used is False or evidence.gpu.rows:
        return None
    notice = evidence.view.session.notices.get("gpu")
    return notice.message if notice else "no figures of the GPU"


def _no_collections(evidence: Evidence) -> str | None:
    if evidence.collecting is not None or (evidence.samples.in_steps.share(is_collecting) or 0.0) >= REPORTED:
        return None
    when = "" if evidence.process.markers else "without markers "
    return f"{when}the garbage collector's pauses are not recorded"


def _missing_if(is_missing: Callable[[Evidence], object], reason: str) -> Callable[[Evidence], str | None]:
    """A need's ``missing`` that gives one reason."""
    return lambda evidence: reason if is_missing(evidence) else None


def _missing_unless(is_known: Callable[[Evidence], object], reason: str) -> Callable[[Evidence], str | None]:
    """A need's ``missing`` that gives one reason if the training uses a GPU that is read, and ``is_known`` is False."""
    return _missing_if(lambda each: each.gpu.is_used is not False and each.gpu.rows and not is_known(each), reason)


MARKERS = Need("markers of steps")
STEPS = Need("phases of steps", _no_steps)
STEP_TIMES = Need("step times from the beginning of the run on", _no_step_times, thresholds=(JUMP_AT_ONCE, JUMP_LASTS))
BOUNDARIES = Need(
    "the beginning and end of steps",
    _missing_if(lambda each: each.phases.inferred, "no markers: the beginning and end of a step are not known"),
)
SAMPLES = Need("stack samples", _no_samples, reported_as="places")
SETTINGS = Need(
    "what the process reports of itself",
    _missing_if(
        lambda each: not each.process.markers and each.phases and not each.gpu.is_used,
        "no markers: the types it computes in, and tracers written in C, are not known (--inject brings them)",
    ),
    reported_as="precision and tracers",
)
RUN_QUEUE = Need(
    "run-queue delay of threads (schedstat)",
    _missing_if(
        lambda each: each.machine.demand is None and not all(process.ended for process in each.view.processes()),
        "the kernel does not report how long threads wait for a core (schedstat)",
    ),
)
RANKS = Need("two or more ranks of one training", thresholds=(BACKWARD_PER_FORWARD, TOGETHER_MS))
GPU_TIMES = Need(
    "GPU times of steps",
    _no_gpu_times,
    thresholds=(GPU_CLOCK_WAIT_S, MIN_STEPS, GAPS, DEVICE_COPIES, SLOW_PCIE, SMALL_PINNED_BYTES),
)
GPU_WAITS = Need(
    "stack samples of waits for the GPU",
    _missing_if(
        lambda each: each.gpu.is_used is not False and _has_gpu_times(each) and each.gpu.waits is None,
        "too few stack samples to say what the CPU waits for",
    ),
)
GPU_COUNTERS = Need("NVML's counters", _no_gpu_counters)
TENSOR_ACTIVITY = Need(
    "activity of the tensor cores (GPM), or the types of matrix products",
    _missing_unless(
        lambda each: each.gpu.product_types or any(row.latest.tensor_ratio is not None for row in each.gpu.rows),
        "this GPU does not report the activity of its tensor cores (GPM: Hopper and later), and the types of the"
        " model's products are not known",
    ),
)
GPU_LOAD = Need(
    "utilisation and memory of the GPU",
    _missing_unless(
        lambda each: any(None not in (row.latest.util_ratio, row.latest.memory_used_bytes) for row in each.gpu.rows),
        "this GPU does not report its utilisation and memory",
    ),
)
ALLOCATOR = Need(
    "counters of torch's allocator",
    _missing_unless(
        lambda each: any(row.retries is not None for row in each.torch_memory),
        "torch's allocator has not reported its counters, or not for long enough",
    ),
)
COLLECTIONS = Need("pauses of the garbage collector", _no_collections)
MACHINE_MEMORY = Need(
    "the machine's memory",
    _missing_if(lambda each: each.machine.table.latest is None, "the machine's memory is not recorded"),
)
NUMA_NODES = Need("two NUMA nodes or more")

#: All needs in the order in which they are reported.
NEEDS = tuple(each for each in list(globals().values()) if isinstance(each, Need))
