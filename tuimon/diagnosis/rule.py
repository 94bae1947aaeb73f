"""A row of the rule table: all that defines one rule, and the evidence that the rule needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from tuimon.diagnosis.cells import Cell, Cells
from tuimon.diagnosis.evidence.course import COMPARABLE_WINDOWS, JUMP_AT_ONCE, JUMP_LASTS
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import SMALL_PINNED_BYTES, GpuEvidence
from tuimon.diagnosis.evidence.gpu_steps import (
    DEVICE_COPIES,
    GAPS,
    GPU_CLOCK_WAIT_S,
    MIN_STEPS,
    SLOW_PCIE,
    has_enough_steps,
)
from tuimon.diagnosis.evidence.lines import is_collecting
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD, TOGETHER_MS
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.threshold import MIN_SAMPLES, REPORTED, Threshold
from tuimon.diagnosis.words import percent


class Need(Struct, frozen=True):
    """A kind of evidence. ``missing`` returns the reason for people; None if it is there, or nothing to report.

    A run may rightly lack it, such as a second rank: there is nothing to judge then, and nothing is reported.
    """

    what: str
    missing: Callable[[Evidence], str | None] = lambda _: None
    reported_as: str | None = None  # reported in place of the names of the rules that need it
    thresholds: tuple[Threshold, ...] = ()  # by which it is judged to be there, or what it shows


#: Added if samples show that a model runs: in such a loop no hook sees the end of a step.
_UNMARKED = ", and a model runs: without DataLoader, backward and optimizer, tuimon.step() says where one ends"


def _no_steps(evidence: Evidence) -> str | None:
    table = evidence.steps.phases
    if table is not None:
        return None if table.trains else "the steps have no batch, backward pass or update that was seen"
    if evidence.steps.stats.total:
        return "no step that has ended was timed"
    process = evidence.process
    if process is None or process.markers:
        runs_model = evidence.samples.phases["forward"] > 0
        return f"no step has ended{_UNMARKED if runs_model else ''}"
    samples = _no_training(evidence.samples.total)
    return f"no markers: {process.markers_reason or 'attached without them'}; and {samples}"


def _no_training(samples: int) -> str:
    """The text, by the rule of three: time worth three samples is in at least one sample in 95 of 100 cases."""
    if samples < MIN_SAMPLES:
        return "too few samples to find a training loop"
    return (
        f"none of {samples} samples is in backward or an update: if it trains, these take less than"
        f" {percent(3 / samples)} of its time (--inject brings the markers)"
    )


def _no_step_times(evidence: Evidence) -> str | None:
    if evidence.steps.phases is None:
        return None  # STEPS reports that
    if evidence.steps.phases.inferred:
        return "no markers: shares are inferred from stacks, step times are not known"
    if len(evidence.course.rows) < COMPARABLE_WINDOWS:
        return "the run is too short to compare its end with its beginning"
    return None


def _no_boundaries(evidence: Evidence) -> str | None:
    if evidence.steps.phases is not None and evidence.steps.phases.inferred:
        return "no markers: the beginning and end of a step are not known"
    return None


def _no_samples(evidence: Evidence) -> str | None:
    if evidence.view.session.stacks[evidence.pid].latest_s is not None:
        return None
    notice, missing = evidence.view.session.notices.get("stacks"), "no stack samples"
    if notice is None:
        return missing
    return notice.message if notice.message.startswith(missing) else f"{missing}: {notice.message}"


def _no_settings(evidence: Evidence) -> str | None:
    if evidence.process is None or evidence.process.markers or evidence.steps.phases is None or evidence.gpu.is_used:
        return None
    return "no markers: the types it computes in, and tracers written in C, are not known (--inject brings them)"


def _no_run_queue(evidence: Evidence) -> str | None:
    if evidence.here.demand is not None or all(process.ended for process in evidence.view.processes()):
        return None
    return "the kernel does not report how long threads wait for a core (schedstat)"


def _no_gpu_times(evidence: Evidence) -> str | None:
    if evidence.gpu.is_used is False or _has_gpu_times(evidence):
        return None
    if evidence.process is not None and not evidence.process.markers:
        return "no GPU events: attached without markers"
    return "no GPU events yet, or none that could be timed (captured graphs, other streams, another accelerator)"


def _has_gpu_times(evidence: Evidence) -> bool:
    return evidence.gpu.times is not None and has_enough_steps(evidence.gpu.times.steps, evidence.gpu.times.timed_s)


def _no_gpu_waits(evidence: Evidence) -> str | None:
    if evidence.gpu.is_used is False or not _has_gpu_times(evidence) or evidence.gpu.waits is not None:
        return None
    return "too few stack samples to say what the CPU waits for"


def _no_gpu_counters(evidence: Evidence) -> str | None:
    if evidence.gpu.is_used is False or evidence.gpu.rows:
        return None
    notice = evidence.view.session.notices.get("gpu")
    return notice.message if notice else "no figures of the GPU"


def _unless(is_known: Callable[[GpuEvidence], bool], reason: str) -> Callable[[Evidence], str | None]:
    """A need's ``missing``: the reason, if a training uses a GPU that is read and ``is_known`` does not hold."""
    return lambda evidence: (
        reason if evidence.gpu.is_used is not False and evidence.gpu.rows and not is_known(evidence.gpu) else None
    )


def _no_collections(evidence: Evidence) -> str | None:
    if evidence.steps.collecting is not None:
        return None
    if (evidence.samples.in_steps.share(is_collecting) or 0.0) >= REPORTED:
        return None
    return "without markers the garbage collector's pauses are not recorded"


MARKERS = Need("markers of steps")
STEPS = Need("phases of steps", _no_steps)
STEP_TIMES = Need("step times from the beginning of the run on", _no_step_times, thresholds=(JUMP_AT_ONCE, JUMP_LASTS))
BOUNDARIES = Need("the beginning and end of steps", _no_boundaries)
SAMPLES = Need("stack samples", _no_samples, reported_as="places")
SETTINGS = Need("what the process reports of itself", _no_settings, reported_as="precision and tracers")
RUN_QUEUE = Need("run-queue delay of threads (schedstat)", _no_run_queue)
RANKS = Need("two or more ranks of one training", thresholds=(BACKWARD_PER_FORWARD, TOGETHER_MS))
GPU_TIMES = Need(
    "GPU times of steps",
    _no_gpu_times,
    thresholds=(GPU_CLOCK_WAIT_S, MIN_STEPS, GAPS, DEVICE_COPIES, SLOW_PCIE, SMALL_PINNED_BYTES),
)
GPU_WAITS = Need("stack samples of waits for the GPU", _no_gpu_waits)
GPU_COUNTERS = Need("NVML's counters", _no_gpu_counters)
TENSOR_ACTIVITY = Need(
    "activity of the tensor cores (GPM)",
    _unless(
        lambda gpu: any(row.latest.tensor_ratio is not None for row in gpu.rows),
        "this GPU does not report the activity of its tensor cores (GPM: Hopper and later)",
    ),
)
GPU_LOAD = Need(
    "utilisation and memory of the GPU",
    _unless(
        lambda gpu: any(None not in (row.latest.util_ratio, row.latest.memory_used_bytes) for row in gpu.rows),
        "this GPU does not report its utilisation and memory",
    ),
)
ALLOCATOR = Need(
    "counters of torch's allocator",
    _unless(
        lambda gpu: any(row.retries is not None for row in gpu.memory),
        "torch's allocator has not reported its counters, or not for long enough",
    ),
)
COLLECTIONS = Need("pauses of the garbage collector", _no_collections)
MACHINE_MEMORY = Need(
    "the machine's memory",
    lambda evidence: None if evidence.here.table.latest is not None else "the machine's memory is not recorded",
)
NUMA_NODES = Need("two NUMA nodes or more")

#: All needs in the order in which they are reported.
NEEDS = tuple(each for each in list(globals().values()) if isinstance(each, Need))


class Rest(NamedTuple):
    """The part of a step that no finding holds."""

    evidence: Evidence
    cells: Cells  # shares of a step
    found: tuple[Finding, ...]  # the findings that contradict a loop in order


class Rule(Struct, frozen=True):
    """One rule: it abstains if any of ``needs`` is missing; ``judge`` returns None if it finds nothing."""

    title: str  # for people, in a few words
    judge: Callable[[Evidence], Finding | None]
    needs: tuple[Need, ...]
    causes: tuple[str, ...] = ()
    takes: Callable[[Cell, Finding], bool] | None = None  # the cells whose time its findings claim
    of_rest: Callable[[Rest], Finding | None] | None = None  # the finding about time that no other finding holds
    claims_first: bool = False  # its time is claimed before that of findings with longer claims
    claims_rest: bool = False  # it claims what others leave: findings that explain half of that come before it
    contradicts_order: bool = False  # while one of its findings holds, unless benign, the loop is not in order
    only_in_order: bool = False  # its finding without a cause is kept only if nothing that contradicts order is found;
    # a benign one comes before findings not worth a fix
    from_outside: bool = False  # caused by others or by the machine: ranked after what the run does to itself
    is_harm: bool = False  # it may end the run: grave whatever a fix gains, and first among findings of its severity
    of_moment: bool = False  # about a state of a moment, such as full memory, not about steps

    @property
    def name(self) -> str:
        """The name of ``judge``, as reports and ``--fail-on`` spell it."""
        return self.judge.__name__

    @property
    def needs_no_step(self) -> bool:
        """True if it is judged before the first step, and after the run's end, of which it may be the cause."""
        return self.is_harm and self.of_moment
