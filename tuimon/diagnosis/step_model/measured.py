"""The parameters of the step, as measured."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tuimon.diagnosis.evidence.data import HAND_OVER_MS
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.threads import OWN_WAITS
from tuimon.diagnosis.finding import Change, Fix, What
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.step_model.edits import ModelStep
from tuimon.diagnosis.step_model.model import OPEN_SHARE, StepModel, step_ms
from tuimon.diagnosis.threshold import TRACE
from tuimon.session.loaders import LoaderRow
from tuimon.session.phase_table import PhaseTable

#: Factor by which handing over may cost more than measured, with larger batches or busier machines: our choice.
_HAND_OVER_AT_MOST = 1.5


def host_model(evidence: Evidence) -> StepModel:
    """The model for the training thread's work beside its data."""
    model = measured_model(evidence, Interval.around(evidence.steps.share_of("data")))
    likely, certain = (replace(step, evaluation_ms=0.0) for step in (model.likely, model.certain))
    return _with_evaluation(evidence, likely, certain, model.step_ms, model.own_ms)


def without(evidence: Evidence, what: What, action: str, share: Interval) -> Fix:
    """The fix that saves this share of the step, which is work of the training thread."""
    model = host_model(evidence)._replace(claimed=share)
    return model.fix(action, Change(what, 0.0), model.own_part(share))


def without_cost(evidence: Evidence, action: str, share: Interval, *, changes_training: bool = False) -> Fix:
    """The fix that saves this share of each step, wherever it lies: time of the GPU, or of other ranks."""
    step = ModelStep(own_ms=1.0, evaluation_ms=_evaluation_ratio(evidence))
    fix = StepModel(step, step, 1.0).fix(action, Change("cost", 0.0), share, changes_training)
    return fix._replace(change=None)


def without_if_sure(evidence: Evidence, action: str, share: Interval, *, changes_training: bool = False) -> Fix:
    """The fix that saves this share of each step; no estimate if one end is within its error, or the whole step."""
    if share.low >= TRACE and share.high < 1.0 - TRACE:
        return without_cost(evidence, action, share, changes_training=changes_training)
    most = 1.0 / (1.0 - share.high) if share.high < OPEN_SHARE else math.inf
    return Fix(action, changes_training=changes_training).by_up_to(most)


def measured_model(evidence: Evidence, share: Interval) -> StepModel:
    """The model of a training with phases, of whose step this share waits for data.

    The part of the data phase that a GPU's work covers does not count as a wait.
    """
    mean_ms, waiting, error = evidence.steps.mean_ms or 1.0, share.middle, share.error
    likely = _measured_step(evidence, mean_ms * waiting, mean_ms)
    if likely.workers and evidence.data.workers.are_saturated and not evidence.data.lie_ready:
        likely = _with_late_batches(likely, mean_ms, evidence.data.workers.busy_ratio or 0.0)
    if evidence.data.is_held_back:
        likely = replace(likely, held_ms=max(0.0, mean_ms - step_ms(likely)))
    if (missing_ms := mean_ms - step_ms(likely)) > 0.0:  # a wait of the training thread that no fix shortens
        own_ms = likely.own_ms + missing_ms
        likely = replace(likely, own_ms=own_ms, own_running=likely.own_running * likely.own_ms / own_ms)
    certain = likely
    if error:
        certain = _measured_step(evidence, mean_ms * max(0.0, waiting - error), mean_ms)
        certain = replace(certain, held_ms=max(0.0, likely.held_ms - error * mean_ms))
    if not certain.workers:  # if the step's length is unknown, handing over may take as long as making
        most_ms = _HAND_OVER_AT_MOST * HAND_OVER_MS if certain.hand_over_ms else certain.batch_ms
        certain = replace(certain, hand_over_ms=most_ms)
    model = _with_evaluation(evidence, likely, certain, mean_ms, mean_ms * (1.0 - waiting))
    possible = model.likely if likely.workers else replace(model.likely, own_threads=1.0, hand_over_ms=0.0)
    return model._replace(claimed=share, possible=possible)


def _with_late_batches(step: ModelStep, mean_ms: float, busy: float) -> ModelStep:
    """A step whose batches come late, made as long as was measured: a batch takes as long as busy workers have for it.

    At the beginning of an epoch no batch is ready. The step's length is nearly proportional to that time.
    """
    longest = replace(step, batch_ms=step.batch_ms / busy)
    short_ms, long_ms = step_ms(step), step_ms(longest)
    part = min(1.0, max(0.0, (mean_ms - short_ms) / (long_ms - short_ms))) if long_ms > short_ms else 0.0
    return replace(step, batch_ms=step.batch_ms + part * (longest.batch_ms - step.batch_ms))


def _with_evaluation(
    evidence: Evidence, likely: ModelStep, certain: ModelStep, mean_ms: float, own_ms: float
) -> StepModel:
    """The model with evaluation at its measured share of the time, however long the model's steps take."""
    ratio = _evaluation_ratio(evidence)
    likely, certain = (replace(step, evaluation_ms=ratio * step_ms(step)) for step in (likely, certain))
    return StepModel(likely, certain, mean_ms, own_ms)


def _evaluation_ratio(evidence: Evidence) -> float:
    """The time of evaluation as a ratio to the time of the steps."""
    share = min(0.99, 1.0 - evidence.steps.part_of_time)
    return share / (1.0 - share)


def _measured_step(evidence: Evidence, data_ms: float, mean_ms: float) -> ModelStep:
    """The measured step without evaluation; if no time is known, times are parts of a step."""
    loader, workers = evidence.data.loader, evidence.data.workers
    starts_ms = data_ms * (evidence.data.epoch_starts or 0.0)
    fetches = _fetches(loader, evidence.steps.phases, mean_ms * (1.0 + _evaluation_ratio(evidence)))
    fetch_ms = (data_ms - starts_ms) / fetches
    drawing_ms = (evidence.data.samples.share(evidence.data.draws) or 0.0) * fetch_ms
    own_ms = mean_ms - data_ms
    if workers.number:
        each_ms = (mean_ms - starts_ms) / fetches
        batch_ms, batch_running, hand_over_ms = _from_workers(evidence, fetch_ms, drawing_ms, each_ms)
        fetching_ms = drawing_ms + hand_over_ms
    else:
        batch_ms, batch_running = fetch_ms - drawing_ms, _running_in_fetch(evidence)
        hand_over_ms = HAND_OVER_MS if evidence.steps.mean_ms else 0.0
        fetching_ms = drawing_ms + batch_ms * batch_running
    running = evidence.training.cpu_ratio
    if running is None:  # as far as others leave cores to it
        running = min(1.0, max(0.0, evidence.here.free_cores))
    on_core_ms = running * mean_ms - fetches * fetching_ms
    own_threads = _own_threads(evidence, mean_ms, on_core_ms)
    return ModelStep(
        own_ms=own_ms,
        own_running=min(1.0, max(0.0, on_core_ms / own_ms)) if own_ms > 0 else 0.0,
        own_threads=own_threads,
        fetches=fetches,
        hand_over_ms=hand_over_ms,
        drawing_ms=drawing_ms,
        starts_ms=starts_ms,
        workers=workers.number,
        batch_ms=batch_ms,
        batch_running=batch_running,
        cores=float(evidence.cores),
    )


def _fetches(loader: LoaderRow | None, table: PhaseTable | None, whole_ms: float) -> int:
    """Batches per step, which takes ``whole_ms`` with its part of the evaluation; 1 without a DataLoader or a step."""
    if loader is None or not loader.fetches_per_s or table is None or not table.steps:
        return 1
    return max(1, round(loader.fetches_per_s * whole_ms / 1e3))


def _running_in_fetch(evidence: Evidence) -> float:
    """The share of a fetch for which the trainer is on a core; its CPU time bounds the waits that samples show."""
    training, waits = evidence.training, evidence.data.samples.share(doing=OWN_WAITS) or 0.0
    if training.cpu_ratio is not None and (data := evidence.steps.share_of("data")):
        waits = min(waits, max(0.0, 1.0 - training.cpu_ratio - (training.delay_ratio or 0.0)) / data)
    return 1.0 - waits


def _from_workers(evidence: Evidence, fetch_ms: float, drawing_ms: float, each_ms: float) -> tuple[float, float, float]:
    """The time in which a worker makes a batch, the share of it on a core, and the time of handing the batch over.

    ``each_ms``: the time from one batch to the next.

    Workers that are never ahead make one batch each in the time of as many fetches as there are workers. The training
    thread works for the part of a fetch in which it does not wait.
    """
    workers = evidence.data.workers
    busy = workers.busy_ratio if workers.busy_ratio is not None else 1.0
    made_ms = workers.batch_ms if workers.batch_ms is not None else busy * workers.number * each_ms
    hand_over_ms = fetch_ms
    if not evidence.data.lie_ready:
        working = evidence.data.working_share
        hand_over_ms = max(drawing_ms, fetch_ms * working if working is not None else min(fetch_ms, HAND_OVER_MS))
        made_ms = max(made_ms, busy * workers.number * each_ms)
    running = min(1.0, (workers.cpu_ratio if workers.cpu_ratio is not None else busy) / busy) if busy else 1.0
    return made_ms, running, hand_over_ms - drawing_ms


def _own_threads(evidence: Evidence, mean_ms: float, on_core_ms: float) -> float:
    """Cores that the training process uses while its training thread does its own work."""
    main, process = evidence.training.cpu_ratio, evidence.figures
    if main is None or process is None or process.cpu_ratio is None or on_core_ms <= 0:
        return 1.0
    beside_ms = max(0.0, process.cpu_ratio - main) * mean_ms
    return min(float(evidence.cores), 1.0 + beside_ms / on_core_ms)
