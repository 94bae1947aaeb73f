"""Models the step of a loop: its measured parameters, fixes as edits of it, and the gain of each.

A fix is a text and a pure function from step to step; all gains come from ``StepModel.gain``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.evidence.data import HAND_OVER_MS
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import WARNING_GAIN, WIDEST_RANGE, Change, EditName, Fix
from tuimon.interval import WHOLE, Interval
from tuimon.session.stacks.activity import WAITS
from tuimon.threshold import TINY, Threshold

HALF = Threshold(
    0.5,
    "least part of the time of a line, or of side work, that a fix removes",
    "our choice: as if it took half; a line that is made cheaper or called less often seldom costs nothing",
)
TAKES_ERROR = Threshold(
    0.15,
    "tolerance of an effect that was measured in other trainings",
    "measured in bench/fused_update.py: 0.10 to 0.47 for 0.30, 0.13 to 0.41 for 0.35; and in bench/cpu_settings.py",
)


class ModelStep(Struct, frozen=True):
    """One step of a loop; times in ms, or in any other unit where no time is known.

    Work on a core takes longer if more threads want to run than there are cores; waiting (for a disk, the network, a
    device) does not. Without workers the training thread makes its batches itself, and nothing is handed over.
    """

    own_ms: float  # of the training thread, without its fetches
    own_running: float = 0.0  # share of ``own_ms`` on a core
    own_threads: float = 1.0  # cores that it uses while on a core
    fetches: int = 1  # batches per step
    hand_over_ms: float = 0.0  # cost to the training thread of taking over a ready batch
    starts_ms: float = 0.0  # per step, for starting and ending an epoch's workers; no batches are made in this time
    workers: int = 0
    batch_ms: float = 0.0  # making one batch
    batch_running: float = 0.0  # share of ``batch_ms`` on a core
    cores: float = 1.0
    drawing_ms: float = 0.0  # drawing the indices of a batch, always in the training thread
    held_ms: float = 0.0  # waiting for the next batch in order while workers that have made later ones idle
    evaluation_ms: float = 0.0  # the step's part of the evaluation between steps; no batches are made in this time


#: How the least effect of a fix is estimated: it removes half of the work, or all of it, or it slows down the rest.
Least = Literal["half", "all", "slower"]


class Edit(NamedTuple):
    """A kind of change; ``of`` takes a step and the part (0..1) of the work that is left, or a new number."""

    of: Callable[[ModelStep, float], ModelStep]
    least: Least = "half"
    is_of_step: bool = False  # its part is one of the whole step, not of the training thread's own work


def _items(step: ModelStep, left: float) -> ModelStep:
    drawing_ms = step.drawing_ms if step.workers else step.drawing_ms * left
    return replace(step, batch_ms=step.batch_ms * left, drawing_ms=drawing_ms, held_ms=step.held_ms * left)


def _fetch(step: ModelStep, left: float) -> ModelStep:
    if not step.workers:
        return _items(step, left)
    return replace(step, hand_over_ms=step.hand_over_ms * left, drawing_ms=step.drawing_ms * left)


def _own(step: ModelStep, left: float) -> ModelStep:
    return replace(step, own_ms=step.own_ms * left)


def _thread(step: ModelStep, left: float) -> ModelStep:
    """The step with this part of the training thread's work left."""
    fetched = _fetch(step, left)
    return replace(
        fetched,
        own_ms=step.own_ms * left,
        hand_over_ms=step.hand_over_ms * left,
        evaluation_ms=step.evaluation_ms * left,
    )


_WITHOUT_WORKERS = {"starts_ms": 0.0, "held_ms": 0.0}
EDITS: dict[EditName, Edit] = {
    "items": Edit(_items),
    "fetch": Edit(_fetch),
    "workers": Edit(lambda step, n: replace(step, workers=int(n), **({} if n else _WITHOUT_WORKERS)), "slower"),
    "starts": Edit(lambda step, left: replace(step, starts_ms=step.starts_ms * left), "slower"),
    "in_order": Edit(lambda step, _: replace(step, held_ms=0.0), "slower"),
    "side_work": Edit(_own),
    "evaluation": Edit(lambda step, left: replace(step, evaluation_ms=step.evaluation_ms * left)),
    "optimizer": Edit(_own),
    "collections": Edit(_thread, "all", is_of_step=True),
    "gil": Edit(_thread, "all", is_of_step=True),  # work that moves to another process is gone from this one
    "communication": Edit(_own),
    "model": Edit(_own),
    "compiling": Edit(_own),
    "cost": Edit(_own, "all"),
}


def changed(step: ModelStep, change: Change, part: float = 1.0) -> ModelStep:
    """The step with a change; ``part``: the share of the work to which the change applies."""
    return EDITS[change.edit].of(step, 1.0 - min(1.0, max(0.0, part) * (1.0 - change.to)))


# -- what an edit gains

#: A fix that gains less than this factor gains nothing.
_NOTHING = 1.005
#: Least part of the cores that is effective if more workers and threads than cores want to run. Measured in
#: tests/scenarios: on 2 cores, 2 workers made a loop that also computes 1.3 times as fast (embedding_extraction).
_SHARED_CORES = 0.65
#: A rearrangement that saves a share of the step slows down the rest by at most this part of that share: 0 to 0.4 were
#: measured in tests/scenarios and tests/explain_pairs.
SLOWDOWN_OF_REST = 0.4
#: The gain of removing at least this share of the step has no upper end: our choice; beyond, each point of the share
#: changes the gain by more than 7 %, and samples show shares only to within some points.
OPEN_SHARE = 0.85
#: At most this many further threads of a pool are taken to wait for a late one: our choice; 1 was measured.
_MAX_COUPLED = 3.0


class StepModel(NamedTuple):
    """A step as it probably is, and a step in which only what is certain can be gained."""

    likely: ModelStep
    certain: ModelStep
    step_ms: float  # as measured, without evaluation
    own_ms: float = 0.0  # part of ``step_ms``: the training thread's own work, with its waits for a core
    claimed: Interval | None = None  # share of the step that may be gained; relief of contention may not exceed it
    possible: ModelStep | None = None  # a step in which more may be gained than is likely

    def fix(self, action: str, change: Change | None, part: Interval = WHOLE, changes_training: bool = False) -> Fix:
        gained = self.gain(change, part) if change is not None else None
        likely = self._likely(change, part) if change is not None else None
        return Fix.with_gain(action, gained, change, likely=likely, changes_training=changes_training)

    def gain(self, change: Change, part: Interval = WHOLE) -> Interval | None:
        """The speedup by a change, between two ends; ``part``: the share of the work to which the change applies.

        None if the speedup is unknown; from 1 to 1 if nothing is gained.

        - A removal saves at best all of the work. At least it saves half of the likely work (replacements seldom cost
          nothing) or all of the certain work, whichever is less: removing 40 % +- 8 % gains at least 1.25 times, by
          half of 40 %, and 40 % +- 24 % gains 1.19 times, by 16 %.
        - The ends are at most ``WIDEST_RANGE`` apart; a wider range is cut to the part around the middle, but
          never begins above what is certain. Removing 75 % gains 2 to 4 times.
        - A removal of more than ``OPEN_SHARE`` of the step has no upper end: removing 90 % gains at least 5 times.
        """
        if part.high <= 0.0:
            return None
        middle = self._likely(change, part)
        if math.isinf(middle):
            return None
        if middle < _NOTHING:
            return Interval(1.0, 1.0)
        certain = min(middle, max(1.0, gain(self._crowded(change), change, max(0.0, part.low))))
        low, least = certain, EDITS[change.edit].least
        if least == "half" and change.to == 0.0:
            low = min(certain, gain(self.likely, change._replace(to=HALF), part.middle))
        elif least == "slower":
            low = max(1.0, min(low, middle / (1.0 + SLOWDOWN_OF_REST * (1.0 - 1.0 / middle))))
        most = max(middle, min(gain(self.possible or self.likely, change, part.high), self._bound))
        if low < _NOTHING:
            return Interval(1.0, min(most, WIDEST_RANGE))
        # changes of workers, and rearrangements, have bounds of their own
        removed = 0.0
        if least != "slower" and self.claimed is not None:
            removed = self.claimed.high * (1.0 - change.to)
        if max(removed, 1.0 - 1.0 / most) >= OPEN_SHARE:
            return Interval(max(low, min(certain, middle / WIDEST_RANGE)), math.inf)
        high = min(most, math.sqrt(WIDEST_RANGE) * middle)
        low = max(low, min(certain, high / WIDEST_RANGE))
        return Interval(low, min(high, WIDEST_RANGE * low))

    def _likely(self, change: Change, part: Interval) -> float:
        return min(gain(self.likely, change, part.middle), self._bound)

    @property
    def _bound(self) -> float:
        """The speedup if all of the claimed share is removed: Amdahl's law."""
        share = (self.claimed or WHOLE).high
        return 1.0 / (1.0 - share) if share < 1.0 else math.inf

    def _crowded(self, change: Change) -> ModelStep:
        """The certain step, with fewer effective cores if the change makes more workers than there are cores."""
        step = self.certain
        if change.edit != "workers" or change.to * step.batch_running + step.own_threads <= step.cores:
            return step
        return replace(step, cores=max(step.own_threads, _SHARED_CORES * step.cores))

    def own_part(self, share: Interval) -> Interval:
        """This share of the measured step, as a part of the training thread's own work in the model.

        The share includes waits for a core, in proportion to all of that work; the model's step excludes them.
        """
        own_ms = max(self.own_ms, self.likely.own_ms)
        scale = self.step_ms / own_ms if own_ms > 0 else 0.0
        return Interval.around(min(1.0, share.middle * scale), share.error * scale)

    def best_number(self, numbers: Iterable[int]) -> int | None:
        """The fewest workers that gain as much as any of these numbers of workers; None if none gains anything."""
        gains = {number: gain(self.likely, Change("workers", number)) for number in sorted(set(numbers))}
        most = max(gains.values(), default=0.0)
        if most < WARNING_GAIN:
            return None
        return next(number for number, gained in gains.items() if gained * WARNING_GAIN >= most)


def gain(step: ModelStep, change: Change, part: float = 1.0) -> float:
    """The speedup by a change, with evaluation; ``part``: the share of the work to which the change applies."""
    changed_ms = step_ms(changed(step, change, part))
    return step_ms(step) / changed_ms if changed_ms > 0 else float("inf")


# -- how long a step takes


@lru_cache(maxsize=512)
def step_ms(step: ModelStep) -> float:
    """The length of a step, with its parts of the evaluation, of epoch starts and of waits for late batches.

    The training thread and its workers run side by side, so the slower of them sets the pace, or the cores do. Worked
    example: one worker needs 10 ms for a batch, the training thread 4 ms for the rest of a step. The worker makes a
    batch while the thread trains on the one before, so a step takes 10 ms. Two workers make one every 5 ms; three, one
    every 3.3 ms, but then the thread's own 4 ms decide. On a single core a step takes 14 ms whatever the number of
    workers.

    If threads want more cores than there are, each has one for a share of the time. A thread that is slowed down needs
    its core for longer, so lengths and shares depend on each other and are computed in rounds.
    """
    beside_ms = step.evaluation_ms + step.starts_ms + step.held_ms
    running_ms, making_ms = step.own_ms * step.own_running, step.fetches * step.batch_ms
    taking_ms = step.fetches * ((step.hand_over_ms if step.workers else step.batch_ms) + step.drawing_ms)
    alone_ms = step.own_ms + running_ms * (max(1.0, step.own_threads / step.cores) - 1.0) + taking_ms
    if not step.workers:
        return beside_ms + alone_ms
    made_ms = making_ms * step.batch_running  # of that, on a core
    least_ms = (running_ms * step.own_threads + taking_ms + made_ms) / step.cores
    whole_ms = max(step.own_ms + taking_ms, making_ms / step.workers, least_ms)
    own, taking, making = speeds = [1.0, 1.0, 1.0]  # relative to a core for each thread
    for _ in range(12 if whole_ms else 0):  # then its length changes by less than a percent
        is_own, is_taking = running_ms / own / whole_ms, taking_ms / taking / whole_ms
        at_work = min(step.workers, made_ms / making / whole_ms)
        beside = at_work * (1.0 - 1.0 / step.workers)
        found = (
            _speed(step, step.own_threads, at_work, 1.0 + min(step.own_threads - 1.0, _MAX_COUPLED)),
            _speed(step, 1.0, at_work),
            is_own * _speed(step, 1.0 + step.own_threads, beside)
            + is_taking * _speed(step, 2.0, beside)
            + max(0.0, 1.0 - is_own - is_taking) * _speed(step, 1.0, beside),
        )
        own, taking, making = speeds = [(before + now) / 2 for before, now in zip(speeds, found, strict=True)]
        own_ms = step.own_ms + running_ms * (1.0 / own - 1.0) + taking_ms / taking
        whole_ms = max(own_ms, (making_ms + made_ms * (1.0 / making - 1.0)) / step.workers, least_ms)
    return beside_ms + min(whole_ms, alone_ms + making_ms)  # at most as long as all work in sequence


def _speed(step: ModelStep, threads: float, others: float, power: float = 1.0) -> float:
    """The speed of a number of threads next to a mean number of others, relative to a core for each.

    Threads of a pool wait for each other, so the pool runs only while all of them have a core: the share of the time in
    which one has a core, to the ``power`` of their number.
    """
    fewest, part = divmod(others, 1.0)
    least, most = (min(1.0, step.cores / (threads + number)) for number in (fewest + 1.0, fewest))
    return part * math.pow(least, power) + (1.0 - part) * math.pow(most, power)


# -- the step as measured

#: Handing over may cost up to this factor more than measured, with larger batches or busier machines: our choice.
_HAND_OVER_AT_MOST = 1.5


def host_model(evidence: Evidence) -> StepModel:
    """The model for fixes of the training thread's own work, apart from its data."""
    model = measured_model(evidence, Interval.around(evidence.phases.share_of("data")))
    likely, certain = (replace(step, evaluation_ms=0.0) for step in (model.likely, model.certain))
    return _with_evaluation(evidence, likely, certain, model.step_ms, model.own_ms)


def without(
    evidence: Evidence,
    edit: EditName,
    action: str,
    share: Interval,
    *,
    to: float = 0.0,
    claimed: Interval | None = None,
    changes_training: bool = False,
) -> Fix:
    """The fix that saves this share of the step, work of the training thread, or all of it but the part ``to``.

    ``claimed``: the share that may be gained, if it is known more exactly.
    """
    model = host_model(evidence)._replace(claimed=claimed or share)
    part = share if EDITS[edit].is_of_step else model.own_part(share)
    return model.fix(action, Change(edit, to), part, changes_training)


def without_cost(evidence: Evidence, action: str, share: Interval, *, changes_training: bool = False) -> Fix:
    """The fix that saves this share of each step, wherever it lies: time of the GPU, or of other ranks."""
    step = ModelStep(own_ms=1.0, evaluation_ms=_evaluation_ratio(evidence))
    fix = StepModel(step, step, 1.0).fix(action, Change("cost", 0.0), share, changes_training)
    return fix._replace(change=None)


def without_if_sure(evidence: Evidence, action: str, share: Interval, *, changes_training: bool = False) -> Fix:
    """The fix that saves this share of each step; without an estimate if the share may be nothing or the whole step."""
    if share.low >= TINY and share.high < 1.0 - TINY:
        return without_cost(evidence, action, share, changes_training=changes_training)
    most = 1.0 / (1.0 - share.high) if share.high < OPEN_SHARE else math.inf
    return Fix(action, changes_training=changes_training).with_upper_bound(most)


def measured_model(evidence: Evidence, share: Interval) -> StepModel:
    """The model of a training with phases, whose step waits for data for this share.

    The part of the data phase that a GPU's work covers does not count as a wait.
    """
    mean_ms, waiting, error = evidence.phases.mean_ms or 1.0, share.middle, share.error
    likely = _measured_step(evidence, mean_ms * waiting, mean_ms)
    if likely.workers and evidence.data.workers.are_saturated and not evidence.data.has_ready_batches:
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
    """A step with late batches, stretched to its measured length: its batches may take all of the workers' busy time.

    No batch is ready at the beginning of an epoch. The step's length is nearly proportional to the time of a batch.
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
    share = min(0.99, 1.0 - evidence.phases.part_of_time)
    return share / (1.0 - share)


def _measured_step(evidence: Evidence, data_ms: float, mean_ms: float) -> ModelStep:
    """The measured step without evaluation; if no time is known, times are parts of a step."""
    loader, workers, training = evidence.data.loader, evidence.data.workers, evidence.training
    starts_ms, fetches = data_ms * (evidence.data.epoch_starts or 0.0), 1
    if loader is not None and loader.fetches_per_s and evidence.phases.steps:
        fetches = max(1, round(loader.fetches_per_s * mean_ms * (1.0 + _evaluation_ratio(evidence)) / 1e3))
    fetch_ms = (data_ms - starts_ms) / fetches
    drawing_ms = (evidence.data.samples.share(evidence.data.draws) or 0.0) * fetch_ms
    own_ms = mean_ms - data_ms
    if workers.number:
        each_ms = (mean_ms - starts_ms) / fetches
        batch_ms, batch_running, hand_over_ms = _from_workers(evidence, fetch_ms, drawing_ms, each_ms)
        fetching_ms = drawing_ms + hand_over_ms
    else:
        waits = evidence.data.samples.share(doing=WAITS) or 0.0
        if training.cpu_ratio is not None and (data := evidence.phases.share_of("data")):  # bounded by its CPU time
            waits = min(waits, max(0.0, 1.0 - training.cpu_ratio - (training.delay_ratio or 0.0)) / data)
        batch_ms, batch_running = fetch_ms - drawing_ms, 1.0 - waits
        hand_over_ms = HAND_OVER_MS if evidence.phases.mean_ms else 0.0
        fetching_ms = drawing_ms + batch_ms * batch_running
    running = training.cpu_ratio
    if running is None:  # on a core that others leave free
        running = min(1.0, evidence.machine.free_cores)
    on_core_ms = running * mean_ms - fetches * fetching_ms
    own_threads, used = 1.0, evidence.cpu_ratio  # the process's threads at work, without the training thread
    if training.cpu_ratio is not None and used is not None and on_core_ms > 0:
        beside_ms = max(0.0, used - training.cpu_ratio) * mean_ms
        own_threads = min(float(evidence.cores), 1.0 + beside_ms / on_core_ms)
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


def _from_workers(evidence: Evidence, fetch_ms: float, drawing_ms: float, each_ms: float) -> tuple[float, float, float]:
    """The time in which a worker makes a batch, the share of it on a core, and the time of handing the batch over.

    ``each_ms``: the time from one batch to the next.

    N workers that are never ahead make one batch each in the time of N fetches. The training thread works during the
    part of a fetch in which it does not wait.
    """
    workers = evidence.data.workers
    busy = workers.busy_ratio if workers.busy_ratio is not None else 1.0
    made_ms = workers.batch_ms if workers.batch_ms is not None else busy * workers.number * each_ms
    hand_over_ms = fetch_ms
    if not evidence.data.has_ready_batches:
        working = evidence.data.working_share
        hand_over_ms = max(drawing_ms, fetch_ms * working if working is not None else min(fetch_ms, HAND_OVER_MS))
        made_ms = max(made_ms, busy * workers.number * each_ms)
    running = min(1.0, (workers.cpu_ratio if workers.cpu_ratio is not None else busy) / busy) if busy else 1.0
    return made_ms, running, hand_over_ms - drawing_ms
