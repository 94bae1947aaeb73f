"""A run to compare: its report, its steps without warm-up, and estimates for a step with their errors.

The steps are grouped into batches of about equal time. Neighbouring batches depend on each other, so the estimates of
one run rest on five long blocks of them, and on the noise from run to run that a single run cannot show; the
estimates of several runs rest on how these runs differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from operator import mul
from statistics import NormalDist, fmean, quantiles, variance
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.cells import Cell, cells_of
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.finding import Finding
from tuimon.interval import Interval
from tuimon.records import STEP_PHASES, Place
from tuimon.session.phase_table import SplitShares
from tuimon.session.series import mean_of_known
from tuimon.session.session import Session
from tuimon.session.stacks.set_up import Checkpoints
from tuimon.session.steps import PHASE_COLUMNS, StepStretch, joined
from tuimon.views.report.report import parts_of, run_facts
from tuimon.views.report_types import RunFacts

#: Standard deviation of the step time from run to run of the same program, which a single run cannot show: our choice;
#: without it two runs of one program would often count as different. ``make truth KIND=diff`` tries it.
RUN_DEVIATION = 0.005
#: The same deviation for the part of a step that CPU cores compute while no GPU does. Measured: six small trainings of
#: one thread on a virtual machine, eight processes each: 1 to 4 % in four, 8 and 17 % in two whose matrices fill the
#: caches. The place of its memory, and who shares the caches, stay the same as long as a process lives.
_CORES_DEVIATION = 0.04
#: With a share w of the time spent waiting for cores that other programs hold, steps are at most (1 - w) ** -power
#: times as long. Measured next to busy programs on 2 cores: 1.3 to 1.5 for one thread, with or without workers, as a
#: thread returns to caches that others have filled; up to 3 for two, which wait for each other after each operation.
_STARVED_POWER = 3.0
#: Batches of a run: more would show how steps depend on each other over less than a minute only, fewer would not show
#: how they vary.
_MAX_BATCHES, MIN_BATCHES = 240, 8
#: Blocks, each so long that it depends little on the one before. Source: Schmeiser (1982), Batch size effects in the
#: analysis of simulation output. Of 300 pairs of 60 batches correlated by 0 (0.5, 0.7) that do not differ, 4.7 %
#: (5.3 %, 7 %) are called different before the noise between runs is added.
_BLOCKS = 5
#: Values further from the quartiles than this many times their distance are outliers (Tukey 1977).
_FENCE = 1.5
#: A beginning is warm-up only if it is shorter than this part of the run: with longer steps (compiling, cold caches),
#: or with shorter ones, as while a queue fills. These last a few steps; a change of the machine's speed lasts long.
_MAX_SLOWER, _MAX_FASTER = 1 / 3, 1 / 10
#: A deviation that lasts over a twentieth to a tenth of a series is taken to last over all of it.
_LASTING = (0.05, 0.1)
#: Flicker noise has as much variance in each octave of time. A series of 20 to 120 values shows only this part of its
#: lasting variance, with so few degrees of freedom: 0.73 to 0.80, and 1.4 to 1.7, in 1,600 to 9,800 made-up series.
#: A pace that shifts once is wider yet.
_SEEN_OF_FLICKER, _LASTING_FREEDOM = 0.70, 1.4
#: A figure of one of a run's stretches.
StepFigure = Callable[["Run", StepStretch], float]


class Run(Struct, frozen=True, kw_only=True, dict=True):
    """The data of one run to compare; small enough that dozens of them fit in memory."""

    name: str
    facts: RunFacts
    findings: Sequence[Finding] = ()
    stretches: Sequence[StepStretch] = ()  # of the process in focus
    phase_errors: Mapping[str, float] = {}  # of the shares that rest on samples
    between_parts: Sequence[float] = SplitShares().parts  # how samples divide time that markers cannot, by STEP_PHASES
    cells: Sequence[tuple[Cell, Place]] = ()  # their shares are of the time of the run's steps
    samples: int = 0  # the number of samples behind the cells
    host_bytes: float = 0.0  # memory of the process in focus and its workers
    gpu_bytes: float = 0.0  # the most memory in use on its GPUs
    gpu_ratio: float | None = None  # mean share (0..1) of the steps in which a kernel ran on its GPUs
    checkpoints: Checkpoints | None = None  # of the process in focus
    starved: float = 0.0  # share (0..1) of its time that the most starved thread waited for a core that others held
    gpu_taken: float = 0.0  # share (0..1) of the time that other programs used the run's most contended GPU

    @cached_property
    def batches(self) -> list[StepStretch]:
        """All of the run's steps, with warm-up."""
        return equal_stretches(self.stretches, _MAX_BATCHES)

    @cached_property
    def warmup(self) -> list[StepStretch]:
        """The first batches, which are left out."""
        return self.batches[: warmup_length([mean_step_ms(row) for row in self.batches])]

    @cached_property
    def steady(self) -> list[StepStretch]:
        """The batches that are compared."""
        return self.batches[len(self.warmup) :]

    @cached_property
    def level(self) -> StepStretch:
        """The batches that are compared, as one stretch."""
        return joined(self.steady)

    @cached_property
    def blocks(self) -> list[StepStretch]:
        """The batches that are compared, as five stretches of about equal length."""
        ends = [len(self.steady) * at // _BLOCKS for at in range(_BLOCKS + 1)]
        return [joined(self.steady[begin:end]) for begin, end in pairwise(ends)]

    @property
    def assumed_variance(self) -> float:
        """Variance of the step time between runs of one program that a single run cannot show, as a squared ratio.

        Work of CPU cores varies more, unless a GPU computes then; a wait for workers counts as work of theirs.
        """
        busy_ns = self.level.cpu_ns + (self.level.data_ns if self.facts.workers else 0.0)
        on_cores = min(1.0, busy_ns / self.level.total_ns) * (1.0 - (self.gpu_ratio or 0.0))
        return RUN_DEVIATION**2 + (_CORES_DEVIATION * on_cores) ** 2

    @cached_property
    def lasting_variance(self) -> float:
        """The part of that variance that slow changes within the run show."""
        return lasting_variance([mean_step_ms(row) for row in self.steady])

    @property
    def log_slowdown(self) -> float:
        """The logarithm of the factor, at most, by which other programs have lengthened its steps.

        A run that waited for a core for a share w of its time took (1 - w) ** -p as long. Programs on one GPU take
        turns: next to one that takes 0.4 of its time a step is at most 1 / 0.6 times as long.
        """
        return -_STARVED_POWER * math.log1p(-min(self.starved, 0.99)) - math.log1p(-min(self.gpu_taken, 0.99))


Runs = Sequence[Run]
NOWHERE = Place("", 0, "", "")


def equal_stretches(rows: Sequence[StepStretch], number: int) -> list[StepStretch]:
    """At most ``number`` stretches of about equal time, each with a timed step; empty if no step was timed.

    None is shorter than the longest row. A remainder at the end joins the last stretch.
    """
    least_s = 0.95 * max((sum(row.span_s for row in rows) / number, *(row.span_s for row in rows)))  # by some ms
    found: list[StepStretch] = []
    for row in rows:
        if found and not (_is_timed(found[-1]) and found[-1].span_s >= least_s):
            found[-1] = joined((found[-1], row))
        else:
            found.append(row)
    if len(found) > 1 and (found[-1].span_s < 0.5 * least_s or not _is_timed(found[-1])):
        found[-2:] = [joined(found[-2:])]
    return [row for row in found if _is_timed(row)]


def _is_timed(row: StepStretch) -> bool:
    return row.steps > 0 and row.total_ns > 0


def mean_step_ms(row: StepStretch) -> float:
    return row.total_ns / row.steps / 1e6


def phase_ms(name: str, run: Run, row: StepStretch) -> float:
    """The time of a phase in the mean step of a stretch."""
    if name == "eval":
        return row.eval_ns / row.steps / 1e6
    parts = row.stacked_ms(run.between_parts)
    return parts[STEP_PHASES.index(name)] if parts is not None else 0.0


def run_of(session: Session, findings: Sequence[Finding], name: str) -> Run:
    """The part of a fully read run that is compared."""
    now = parts_of(session.over("whole"))
    own, view, facts = now.own, now.view, run_facts(now)
    if not own.is_marked:
        return Run(name=name, facts=facts)
    evidence = evidence_of(own)
    threads, processes = (
        evidence.machine.live_threads,
        [evidence, *(view.of(worker.pid) for worker in evidence.workers)],
    )
    waits = [row.delay_ratio for process in threads for row in process.threads if row.delay_ratio is not None]
    gpus, divided = [row for row in view.gpus() if row.used_by_run], cells_of(evidence)
    taken = [row.taken_ratio for row in gpus]  # in the steps
    found = [finding.evidence.get("others_sm_ratio") for finding in findings]  # while it was a finding
    in_steps = sum(cell.share for cell in divided if cell.phase in STEP_PHASES) or 1.0
    return Run(
        name=name,
        facts=facts,
        findings=findings,
        stretches=own.stats.stretches(),
        phase_errors={row.name: row.error or 0.0 for row in own.phases.rows if row.estimated},
        between_parts=own.split.parts,
        cells=[
            (replace(cell, share=cell.share / in_steps, bounds=cell.interval.times(1 / in_steps), node=None), place)
            for cell in divided
            for place in ((cell.node and cell.node.place) or NOWHERE,)
            if cell.phase in PHASE_COLUMNS
        ],
        samples=evidence.samples.total,
        host_bytes=sum(known.rss_bytes or 0 for each in processes if (known := each.thread_figures) is not None),
        gpu_bytes=sum(max(filter(None, row.history("memory_used_bytes")), default=0.0) for row in gpus),
        gpu_ratio=mean_of_known(row.means.util_ratio for row in view.all_gpus() if row.used_by_run and row.means),
        checkpoints=own.checkpoints,
        starved=evidence.machine.waits_from_outside.part * min(1.0, max(waits, default=0.0)),
        gpu_taken=min(1.0, max((*taken, *(ratio for ratio in found if isinstance(ratio, float))), default=0.0)),
    )


# -- warm-up


def warmup_length(series: Sequence[float]) -> int:
    """How many values to leave out at the start: outliers from the second half, all of them above it or all below.

    For 9 7 5 5 4 5 5 4 the answer is 2. In about one run of a hundred a value is left out that is not warm-up.
    """
    half = series[len(series) // 2 :]
    if len(half) < 4:
        return 0
    lower, _, upper = quantiles(half, n=4)
    fence, most = _FENCE * (upper - lower), [int(part * len(series)) + 1 for part in (_MAX_SLOWER, _MAX_FASTER)]
    slower = next((at for at, value in enumerate(series[: most[0]]) if value <= upper + fence), 0)
    faster = next((at for at, value in enumerate(series[: most[1]]) if value >= lower - fence), 0)
    return max(slower, faster)


# -- estimates


class Estimate(NamedTuple):
    """A value, the variance of its error, and how many degrees of freedom that variance has."""

    value: float
    variance: float = 0.0
    freedom: float = math.inf

    def plus(self, variance: float, freedom: float = math.inf) -> Estimate:
        """The estimate with an independent error added, by Satterthwaite (1946)."""
        both = self.variance + variance
        shares = self.variance**2 / self.freedom + variance**2 / freedom
        return Estimate(self.value, both, both * both / shares if shares > 0 else math.inf)


def estimate(runs: Runs, figure: StepFigure, variance: float = 0.0, *, is_log: bool = False) -> Estimate:
    """A figure of the mean step of one side, or its logarithm.

    ``variance``: of an error that the variation between the blocks of a single run does not show.
    """

    def of(run: Run, row: StepStretch) -> float:
        return math.log(max(figure(run, row), 1e-300)) if is_log else figure(run, row)

    if len(runs) > 1:
        return mean_of([of(run, run.level) for run in runs])
    (run,) = runs
    value = of(run, run.level)
    scale = 1.0 if is_log else value * value
    found = mean_of([of(run, block) for block in run.blocks])._replace(value=value)
    return found.plus(variance + run.assumed_variance * scale).plus(run.lasting_variance * scale, _LASTING_FREEDOM)


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of at least two values that are independent of one another, such as runs."""
    return Estimate(fmean(values), variance(values) / len(values), len(values) - 1)


def lasting_variance(series: Sequence[float]) -> float:
    """Variance of the mean of another such series about this one's, as a squared ratio; 0 if values are independent.

    It is the part of the variance that values share with those a twentieth to a tenth of the series later: what changes
    the speed of a machine for seconds also changes it for minutes, so neither a longer series nor the next one averages
    it out. Source: ours; of 60 pairs whose speed wanders by 6 % none is called different, and 10 without it.
    """
    number, mean = len(series), fmean(series)
    first, last = (max(1, round(part * number)) for part in _LASTING)
    away = [value - mean for value in series]
    shared = fmean(sum(map(mul, away, away[lag:])) / number for lag in range(first, last + 1))
    return max(0.0, shared) / (_SEEN_OF_FLICKER * mean * mean) if mean > 0 else 0.0


def difference(before: Estimate, after: Estimate, confidence: float = 0.95) -> Interval:
    """The interval of ``after`` less ``before``, by the t test of Welch (1947)."""
    error = before.plus(after.variance, after.freedom)
    return Interval.around(
        after.value - before.value, t_quantile((1 + confidence) / 2, error.freedom) * math.sqrt(error.variance)
    )


def t_quantile(probability: float, freedom: float) -> float:
    """The value that Student's t with ``freedom`` degrees stays below with this probability (0.5..1).

    From 3 degrees on by the series of Cornish and Fisher (Abramowitz and Stegun, 26.7.5), right within 0.5 % up to the
    99.9 % quantile; below, fractions are rounded down, so that intervals come out wider.
    """
    if freedom < 2:
        return math.tan(math.pi * (probability - 0.5))
    if freedom < 3:
        centred = 2 * probability - 1
        return centred * math.sqrt(2 / (1 - centred * centred))
    z, n = NormalDist().inv_cdf(probability), min(freedom, 1e9)
    z2 = z * z
    terms = (
        (z2 + 1) / 4,
        ((5 * z2 + 16) * z2 + 3) / 96,
        (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384,
        ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160,
    )
    return z * (1 + sum(term / n**power for power, term in enumerate(terms, 1)))
