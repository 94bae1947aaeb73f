"""A row of the rule table: the definition of one rule, the evidence that it needs, and the time that it may claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct

from tuimon.diagnosis.cells import Cell, CellPhase, Cells, Doing, gpu_idle_in, of_loop, of_step
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
from tuimon.diagnosis.finding import Finding
from tuimon.interval import NONE, Interval
from tuimon.records import PASSES
from tuimon.text import percent
from tuimon.threshold import MIN_SAMPLES, MOST, REPORTED, SMALL, TINY, Threshold


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


def _missing_unless(is_known: Callable[[Evidence], bool], reason: str) -> Callable[[Evidence], str | None]:
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
    "activity of the tensor cores (GPM)",
    _missing_unless(
        lambda each: any(row.latest.tensor_ratio is not None for row in each.gpu.rows),
        "this GPU does not report the activity of its tensor cores (GPM: Hopper and later)",
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


class Unclaimed(NamedTuple):
    """The part of a step that no finding explains."""

    evidence: Evidence
    cells: Cells  # shares of a step
    found: tuple[Finding, ...]  # the findings that show a fault of the loop
    holds_up: bool  # one of them is at least a warning

    @property
    def computes(self) -> dict[str, float]:
        """By phase, the share of a step in which the training thread runs a pass or an update."""
        return {name: self.cells.computing.where({name}).share for name in PASSES}


#: What the findings of a rule say of a run, unless they are benign:
#:
#: - ``harm``: something may end the run. It is severe whatever a fix gains, and first among findings of its severity.
#: - ``late``, ``fault``, ``leftovers``: a fault of the loop, which contradicts that it is in order. ``late`` claims its
#:   time before any other. ``leftovers`` claims what others leave: a finding that explains at least half of the same
#:   time comes before it.
#: - ``fact``: a fact that is neither.
#: - ``no_fault``: the loop has no fault. Without a cause it is dropped if a fault is found; a benign finding comes
#:   before findings that are not worth a fix. It, too, claims what others leave.
#: - ``outside``: a cause outside the run, after all causes inside it.
Kind = Literal["harm", "late", "fault", "leftovers", "fact", "no_fault", "outside"]


class Rule(Struct, frozen=True):
    """One rule. It abstains if any of ``needs`` is missing; ``judge`` returns None if it finds nothing."""

    judge: Callable[[Evidence], Finding | None]
    title: str  # for people, in a few words
    needs: tuple[Need, ...]
    kind: Kind = "fact"
    causes: tuple[str, ...] = ()
    takes: Callable[[Cell, Finding], bool] | None = None  # whether a finding claims the time of a cell
    of_unclaimed: Callable[[Unclaimed], Finding | None] | None = None  # judges the time that no other explains
    of_moment: bool = False  # its findings are about a moment, such as full memory, not about steps

    @property
    def name(self) -> str:
        """The name of ``judge``, which is the rule's name in reports and in ``--fail-on``."""
        return self.judge.__name__

    @property
    def is_fault(self) -> bool:
        """True if its findings, unless benign, show a fault of the loop."""
        return self.kind in ("late", "fault", "leftovers")

    @property
    def needs_no_step(self) -> bool:
        """True if the rule is judged even before the first step and after the run's end, which it may have caused."""
        return self.kind == "harm" and self.of_moment


# -- how certain the time that a rule claims must be

SETTLED_S = Threshold(
    4.0,
    "seconds that the phase table must cover before a share near its threshold counts",
    "our choice: until then loaders fill their queues",
)
UNSURE = Threshold(
    0.10,
    "tolerance of a share in the first seconds, or of one from few readings of the GIL's holder",
    "our choice: filling queues or one collection make up less; 37 readings gave 0.19 to 0.46 where five times as"
    " many gave 0.28",
)


class Claim(NamedTuple):
    """A claim on a part of a step's time."""

    share: float  # if GPU times are known, the upper bound of the GPU's idle time in it
    error: float | None  # of ``share``, if samples divide the phases
    lost: Interval  # the share of the step that this costs
    on_gpu: Interval | None
    ms_per_step: float | None  # of the training thread


def claim_on(evidence: Evidence, phase: CellPhase, *others: Doing) -> Claim:
    """The claim of a phase, without the cells of other rules: those of ``others``, and waits for the GIL and for ranks.

    Measured time that no sample locates stays with the phase (garbage collections with the code that makes the
    garbage), unless other rules claim most of the phase. So does time that is too little for a finding of another rule:
    the share is then that of the phase. Launches that run ahead cover time, which then costs the GPU nothing.
    """
    step, row, mean_ms = of_step(evidence), evidence.phases.row(phase), evidence.phases.mean_ms

    def is_others(cell: Cell) -> bool:
        return cell.doing in (*others, "exchange") or "gil" in cell.via or "rank" in cell.via

    whole = step.where(phase=(phase,))
    taken = sum(cell.share for cell in whole if is_others(cell))
    is_most, is_little = taken >= MOST * whole.share, taken < SMALL

    def is_claimed(cell: Cell) -> bool:
        stays = not is_others(cell) or (not is_most and (is_little or cell.basis == "measured"))
        return cell.phase == phase and stays

    error = row.error if row is not None else None
    share = sum(cell.share for cell in step if is_claimed(cell))
    ms = share * mean_ms if mean_ms is not None else None
    if evidence.gpu.steps is None:
        return Claim(share, error, Interval.around(share, error or 0.0), None, ms)
    idle = gpu_idle_in(evidence, is_claimed).up_to(share)
    lost = idle if idle.low >= TINY else NONE
    return Claim(idle.high, error, Interval.around(lost.middle, lost.error + (error or 0.0)), idle, ms)


def waits_for_cores(evidence: Evidence, had_by: Literal["own", "others"]) -> float | None:
    """Share of the loop in which the training, or a worker it waits for, waits for a core that ``had_by`` occupies."""
    if evidence.training.delay_ratio is None:
        return None
    return sum(cell.share for cell in of_loop(evidence).where(doing={had_by}, via="core") if "rank" not in cell.via)


def is_sure(
    evidence: Evidence, share: float, least: float = REPORTED, error: float | None = None, *, early: bool = True
) -> bool:
    """True if a share of the step is at least ``least``, given its ``error`` and the seconds measured so far.

    ``early``: a share well above ``least`` counts before the phase table has settled.
    """
    if not evidence.phases or share < least or (error is not None and share - error < least):
        return False
    return evidence.phases.window_s >= SETTLED_S or (early and share - UNSURE >= least)
