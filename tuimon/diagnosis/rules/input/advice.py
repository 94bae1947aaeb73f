"""Fixes for data that comes too late, and their gains."""

from __future__ import annotations

import math
from typing import Literal

from msgspec.structs import replace

from tuimon.diagnosis.evidence.batches import READS, is_loaders_own, lie_ready
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.side_work import update_path
from tuimon.diagnosis.evidence.workers import SATURATED_BUSY
from tuimon.diagnosis.finding import Change, Fix
from tuimon.diagnosis.interval import WHOLE, Interval
from tuimon.diagnosis.rules.input.cause import (
    draws_in_few,
    working_part,
)
from tuimon.diagnosis.rules.neighbour import is_held_up
from tuimon.diagnosis.step_model.edits import HALF, Way
from tuimon.diagnosis.step_model.fitting import OWN_PART
from tuimon.diagnosis.step_model.measured import measured_model, undisturbed_share
from tuimon.diagnosis.step_model.model import StepModel
from tuimon.diagnosis.threshold import MOST, SMALL
from tuimon.diagnosis.words import CHANGES_TRAINING, percent, work_at
from tuimon.session.rows import HotLine
from tuimon.session.series import sampling_error
from tuimon.text import ms_text

#: The workers are multiplied by at most this at once, where they do not fit on the cores beside it: the disk or network
#: behind them may have limits of its own.
MOST_WORKERS_RATIO = 4
#: Part of the cores that is left to the training's own threads: our choice; its own, autograd's, that which pins.
_LEFT = 4
#: Most workers to begin with.
MOST_FIRST_WORKERS = 8
#: Causes by which the training process makes its data itself; workers that it has make other data, or step its
#: environments while it waits for them.
_MADE_HERE = ("hand_rolled_loader", "rollout")


_HANDED_OVER_ALIKE = f"each costs the same to hand over ({CHANGES_TRAINING})"
#: The environments are multiplied by this at once: our choice, as memory and the training's variance have limits.
_MORE_ENVIRONMENTS = 4


def fixes_for(cause: str | None, hot: HotLine | None, evidence: Evidence, waiting: Interval) -> list[Fix]:
    """Fixes for a wait for data of this part of the step, the surest gain first.

    Each fix is a change of the step's model, and its gain what the simulation of that gives: more workers before a
    line that may cost nothing.
    """
    model = measured_model(evidence, waiting)
    if cause == "slow_thread" or (cause == "messages" and (evidence.senders.ran_ratio or 0.0) >= SATURATED_BUSY):
        # a thread that makes data takes cores and the GIL from the training thread, but others' processes may as well
        is_own = cause == "slow_thread" and not is_held_up(evidence)
        model = _made_beside(model, undisturbed_share(evidence) if is_own else 1.0)
    elif cause == "messages" or (cause in _MADE_HERE and (evidence.workers.number or evidence.senders.number)):
        model = _made_after_the_fetch(model, waiting)
    if cause == "messages":
        ways = _from_processes(hot, evidence)
    else:
        ways = _in_any_order(evidence) if cause == "held_back" else []
        ways += _ways(cause, hot, evidence, model)
    if cause not in ("hand_over", "starting"):
        kept = _kept_workers(evidence, model)
        ways += [*kept, *(_starting_none(evidence) if kept else [])]
    if cause != "idle_workers":  # whose fault is mended before anything else is made cheaper
        ways.sort(key=lambda way: -model.surely(way.change, way.part))
    return [model.fix(*way) for way in ways]


def _made_beside(model: StepModel, undisturbed: float) -> StepModel:
    """The model with the thread, or the other processes, as the one worker that sets the pace.

    ``undisturbed``: the part of a step that is left of the training thread's own work without them.
    """
    likely, certain = (
        replace(step, workers=1, batch_ms=model.step_ms, hand_over_ms=0.0, drawing_ms=0.0) for step in model[:2]
    )
    own_ms = min(likely.own_ms, max(OWN_PART * likely.own_ms, undisturbed * model.step_ms))
    return model._replace(likely=replace(likely, own_ms=own_ms), certain=certain)


def _made_after_the_fetch(model: StepModel, waiting: Interval) -> StepModel:
    """The model with batches that the loop itself makes of what it has fetched, whatever its workers do."""
    parts_ms = [max(0.0, part) * model.step_ms for part in (waiting.middle, waiting.low)]
    here = [replace(step, workers=0, fetches=1, batch_running=1.0, drawing_ms=0.0, starts_ms=0.0) for step in model[:2]]
    likely, certain = (
        replace(step, batch_ms=ms, own_ms=model.step_ms - ms) for step, ms in zip(here, parts_ms, strict=True)
    )
    return model._replace(likely=likely, certain=certain)


def _ways(cause: str | None, hot: HotLine | None, evidence: Evidence, model: StepModel) -> list[Way]:
    making = _cheaper(evidence, hot, "items", _part(hot, evidence))
    match cause:
        case "no_workers":
            return [
                *_more_workers(f"set {_option(evidence)}={{}} (now 0){_overlaps(evidence)}", evidence, model),
                *(_whole_batches(hot, evidence) or making),
            ]
        case "hand_rolled_loader":
            return _prepared_here(making, hot, evidence, model)
        case "slow_thread":
            return _then(making, ", or make it in several processes: the training thread waits for it")
        case "sampler":
            return _drawn_sooner(hot, evidence)
        case "workers_saturated" | "idle_workers":
            return _beside_workers(hot, evidence, model)
        case "slow_item":
            return _then(making, _no_more_workers(evidence))
        case "hand_over":
            return _less_hand_over(evidence, model)
        case "starting":
            return [*_kept_workers(evidence, model), *_starting_none(evidence)]
        case "slow_collate":
            collated = ": build the batch in one operation instead of item by item"
            by_loader = [] if evidence.workers.number else _whole_batches(hot, evidence)
            return by_loader or _then(making, collated)
        case "rollout":
            return _of_rollout(hot, evidence, model)
        case "disk_wait":
            again = evidence.read_again
            how = "read fewer, larger files, or cache the data set in memory or on a faster disk"
            return [Way(again.remedy if again is not None else how, Change("items", 0))]
        case _:
            return making


def _no_more_workers(evidence: Evidence) -> str:
    mask = evidence.run.here.mask
    if mask is not None:
        return f": the run may only use {mask.text} (taskset, sched_setaffinity, a cpuset): more workers gain nothing"
    return f": all {evidence.run.cores} cores are busy, so more workers would need more cores"


def _drawn_sooner(hot: HotLine | None, evidence: Evidence) -> list[Way]:
    drawing = _cheaper(evidence, hot, "fetch", _part_of_fetch(hot, evidence))
    if draws_in_few(evidence) is not None:
        at_start = ": it draws an epoch's indices at its start, so do it by whole arrays, or draw the next epoch's in a"
        return _then(drawing, f"{at_start} thread while this one trains")
    return _then(drawing, ": draw many indices at once instead of one by one in the training process")


def _overlaps(evidence: Evidence) -> str:
    """The advice to add first workers: spawned ones beside a pool, whose threads a forked one would await for ever."""
    if evidence.pool is None:
        return ": loading then overlaps with training"
    setting = "multiprocessing_context='spawn'"
    return f" and {setting}: threads of this process make the items, which a forked worker would wait for in vain"


def _option(evidence: Evidence) -> str:
    """The name of the option that sets the number of workers, as the user writes it."""
    return "dataloader_num_workers" if evidence.launching.owner == "transformers" else "num_workers"


def _beside_workers(hot: HotLine | None, evidence: Evidence, model: StepModel) -> list[Way]:
    """More workers at work, and cheaper items; workers that mostly wait have no computation to save."""
    workers = evidence.workers
    if workers.idle:
        return [_a_part_for_each(evidence), *_cheaper(evidence, hot, "items", _part(hot, evidence))]
    company = f"set {_option(evidence)}={{}} (now {workers.number}) on this {evidence.run.cores}-core machine"
    if not workers.waiting:
        return [*_more_workers(company, evidence, model), *_cheaper(evidence, hot, "items", _part(hot, evidence))]
    company += f": each computes only {percent(workers.ran_ratio or 0.0)} of its time"
    making = _cheaper(evidence, hot, "items", _part(hot, evidence))
    if evidence.read_again is not None:
        making = [way._replace(action=f"{evidence.read_again.remedy}, or {way.action}") for way in making]
    return [*_more_workers(company, evidence, model), *making]


def _in_any_order(evidence: Evidence) -> list[Way]:
    """Batches as they come; nothing where this torch cannot."""
    if evidence.loader is None or not evidence.loader.facts.in_order:
        return []
    return [Way("set in_order=False: batches then come as they are made, in another order", Change("in_order", 1))]


def _a_part_for_each(evidence: Evidence) -> Way:
    """Data divided among the workers: all of them make batches then."""
    workers = evidence.workers
    number, option = workers.number + workers.idle, _option(evidence)
    share = f"give each of the {number} workers its share of the data (get_worker_info(), {number} shards or more)"
    fewer = f"or set {option}={workers.number} (now {number}), which is as fast"
    return Way(f"{share}; {fewer}", Change("workers", number))


def _prepared_here(making: list[Way], hot: HotLine | None, evidence: Evidence, model: StepModel) -> list[Way]:
    """Ways to let workers make what the loop makes itself: those that it has, if it has some."""
    if evidence.workers.number:
        own = _cheaper(evidence, hot, "items", _own_part(hot))
        return _then(own, ", or move it into the data set: the workers then do it")
    if evidence.beside_rollout is not None:  # the next batch is not there before the update
        return making
    return [*making, *_more_workers("prepare the next batch in DataLoader workers during the step", evidence, model)]


def _from_processes(hot: HotLine | None, evidence: Evidence) -> list[Way]:
    """Data of other processes as if it came at once."""
    sent = _own_part(hot)
    if evidence.senders.working is not None:
        return _then(_cheaper(evidence, hot, "items", sent), ", or make the data in more processes")
    return [Way("make the data in more processes, or make each of them faster", Change("items", 0.0), sent)]


def _part(hot: HotLine | None, evidence: Evidence) -> Interval:
    """The part of making batches that this function takes; all of it without one.

    The samples of workers are of all their time, those of the training thread of the data phase.
    """
    if hot is None:
        return WHOLE
    busy = evidence.workers.busy_ratio if evidence.workers.number else None
    share = min(1.0, hot.share / busy) if busy else hot.share
    return Interval.around(share, hot.error)


def _own_part(hot: HotLine | None) -> Interval:
    """The part of making batches that this function of the training thread's takes; all of it without one."""
    return Interval.around(hot.share, hot.error) if hot else WHOLE


def _part_of_fetch(hot: HotLine | None, evidence: Evidence) -> Interval:
    """The part of the training thread's own work for a batch that this function takes."""
    if hot is None:
        return WHOLE
    return Interval.around(min(1.0, hot.share / (working_part(evidence) or 1.0)), hot.error)


def _cheaper(evidence: Evidence, hot: HotLine | None, what: Literal["items", "fetch"], part: Interval) -> list[Way]:
    """A line as if it cost nothing; nothing is named of the loop's own line, which only takes the items."""
    path, free = update_path(evidence.samples), Change(what, 0.0)
    at_line = evidence.data_samples.where(lambda node: hot is not None and node.place == hot.place)
    takes = at_line.part(below="fetch") > 0
    if hot is None or (takes and hot.library is None and hot.function in path):
        return [Way("make items cheaper", free, part)]
    if at_line.part(doing=READS) >= MOST if at_line.total else evidence.workers.waiting:
        how = "cache, or read ahead"  # there is nothing to compute
    else:
        how = "vectorise or cache it" if evidence.uses_gpu is False else "vectorise, cache, or move it to the GPU"
    return [Way(f"make {work_at(hot, path)} cheaper ({how})", free, part)]


def _more_workers(action: str, evidence: Evidence, model: StepModel) -> list[Way]:
    """The fewest more workers that gain as much as any number; none where others hold the cores they would need."""
    has, cores = evidence.workers.number, evidence.run.cores
    step = model.likely
    most = max(MOST_WORKERS_RATIO * has if has else MOST_FIRST_WORKERS, cores - cores // _LEFT)
    # so many keep all cores busy by themselves; more take turns
    most = min(most, max(1, math.ceil(cores / max(step.batch_running, 1.0 / MOST_FIRST_WORKERS))))
    if evidence.pool is not None and evidence.pool.cores >= HALF:
        most = min(most, int((cores - step.own_running) / evidence.pool.cores))
    enough = math.ceil(step.fetches * step.batch_ms / step.own_ms) if step.own_ms > 0 else most
    more = model.best_number(
        n for n in ((has + 1, 2 * has) if has else (cores - 1, cores)) + (enough, most) if has < n <= most
    )
    if more is None or (is_held_up(evidence) and model.likely.batch_running >= HALF):
        return []
    action = action.format(more)
    if not has and more > cores:
        action += f"; more than the {cores} cores, as items wait instead of computing"
    return [Way(action, Change("workers", more))]


def _of_rollout(hot: HotLine | None, evidence: Evidence, model: StepModel) -> list[Way]:
    if evidence.rollout is not None and evidence.rollout.is_by_policy:
        return [_more_at_once(evidence)]
    own = _cheaper(evidence, hot, "items", _own_part(hot))
    return [*own, *_side_by_side(evidence), *_in_this_process(evidence, model)]


def _more_at_once(evidence: Evidence) -> Way:
    """The policy called for more environments at once; its gain is known without a GPU, if the update runs the model.

    A call costs something by itself, and something for each state. The forward pass of the update takes the same
    states in few calls, so the rollout's calls take, for the states, that long at most; the rest is shared by as many
    states as a call is given. Environments take as long as before, a step each. Of 60 % for the policy and 10 % for the
    forward pass, 4 times the environments leave 10 % + 50 % / 4. A loss of what the rollout itself has computed, as in
    REINFORCE, has no such forward pass.
    """
    made, data, forward = evidence.rollout, evidence.phase("data"), evidence.phase("forward")
    in_model = evidence.samples.where(phase="forward").part(below="module")
    known = evidence.uses_gpu is False and in_model >= SMALL
    if not known or data is None or forward is None or made is None or not made.environment:
        return Way("run the model for more environments or prompts at once: each call costs about the same")
    calls = max(0.0, made.policy - forward.share / data.share)
    action = (
        f"step {_MORE_ENVIRONMENTS}x as many environments together, for fewer steps each: a call of the policy then"
        f" serves as many more states ({CHANGES_TRAINING})"
    )
    part = Interval.around(calls, sampling_error(calls, evidence.data_samples.total))
    return Way(action, Change("items", 1.0 / _MORE_ENVIRONMENTS), part, changes_training=True)


def _side_by_side(evidence: Evidence) -> list[Way]:
    """Environments in processes of their own, on all cores but the trainer's.

    Nothing where there are no such cores, or where they have such processes.
    """
    made, spare = evidence.rollout, evidence.run.cores - 1
    if made is None or not made.environment or spare < 2 or evidence.senders.number or is_held_up(evidence):
        return []
    action = f"step {spare} environments at once, each in a process of its own (a vectorised environment)"
    return [Way(action, Change("items", 1.0 / spare), Interval.around(made.environment))]


def _in_this_process(evidence: Evidence, model: StepModel) -> list[Way]:
    """Environments out of processes of their own, where all of these compute for less than half of what is waited.

    They would take as long in turn as they compute together; the rest is spent on messages.
    """
    made, senders = evidence.rollout, evidence.senders
    fetches = evidence.data_samples.part(below="fetch") > 0
    if made is None or evidence.loader is not None or fetches or not senders.number or senders.cpu_ratio is None:
        return []
    waited = made.environment * model.likely.batch_ms / model.step_ms
    computing = senders.number * senders.cpu_ratio
    if computing > HALF * waited:
        return []
    action = (
        "step the environments in the training process (a synchronous vectorised environment): messages to their"
        " processes cost more than they compute"
    )
    return [Way(action, Change("items", computing / waited), Interval.around(made.environment))]


def _less_hand_over(evidence: Evidence, model: StepModel) -> list[Way]:
    """Without workers a batch costs what making it costs; the larger batches are, the fewer are handed over.

    Indices are drawn all the same.
    """
    step = model.likely
    fetch_ms = step.hand_over_ms + step.drawing_ms
    handing = Interval.around(step.hand_over_ms / fetch_ms) if fetch_ms else WHOLE
    return [
        _without_workers(evidence, "handing it over"),
        *_kept_workers(evidence, model),
        Way(f"use larger batches: {_HANDED_OVER_ALIKE}", Change("fetch", 0.0), handing, changes_training=True),
    ]


def _without_workers(evidence: Evidence, more: str) -> Way:
    """``more``: what takes longer than making a batch does."""
    workers = evidence.workers
    making = f": making a batch takes {ms_text(workers.batch_ms)}, {more} more" if workers.batch_ms else ""
    return Way(f"set num_workers=0 (now {workers.number}){making}", Change("workers", 0))


def _starting_none(evidence: Evidence) -> list[Way]:
    return [_without_workers(evidence, "starting workers")]


def _kept_workers(evidence: Evidence, model: StepModel) -> list[Way]:
    """Ways to keep workers that are started anew for each epoch; none if they stay."""
    loader, number = evidence.loader, evidence.workers.number
    if not model.likely.starts_ms:
        return []
    kept = "the worker then stays" if number == 1 else f"the {number} workers then stay"
    action = f"set persistent_workers=True: {kept} from epoch to epoch"
    keeping = Way(action, Change("persistent", 1))
    if not lie_ready(loader, evidence.workers, evidence.data_samples):
        return [keeping]
    return [
        keeping,
        Way(f"{action}; and use larger batches: {_HANDED_OVER_ALIKE}", Change("hand_over", 0.0), changes_training=True),
    ]


def _then(ways: list[Way], more: str) -> list[Way]:
    """``more`` about the first."""
    return [ways[0]._replace(action=ways[0].action + more), *ways[1:]]


def _whole_batches(hot: HotLine | None, evidence: Evidence) -> list[Way]:
    """Ways for a wait that is mostly the loader's own work, item by item.

    Without samples the wait has no line, and all of it counts; nothing where the user's lines take most of it, as
    samples or markers show.
    """
    if hot is not None and not hot.samples:
        return []
    data = evidence.data_samples
    own = 1.0 if not data.total else data.share(is_loaders_own) or 0.0
    if own < MOST:
        return []
    at_once = "make whole batches at once (__getitems__ in the data set, a vectorised collate_fn)"
    return [Way(at_once, Change("items", 0.0), Interval.around(own))]
