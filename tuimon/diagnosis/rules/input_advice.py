"""What to do about data that comes too late, and what it would gain."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.loading import OWN_SHARE, Workers, is_loaders_own, waiting_share
from tuimon.diagnosis.finding import WIDEST_RANGE, Fix
from tuimon.diagnosis.rules.cores import is_held_up
from tuimon.diagnosis.speedup import HALF, speedup
from tuimon.diagnosis.words import at_hot
from tuimon.session.rows import LoaderRow

#: The workers are multiplied by at most this at once: the disk or network behind them may have limits of its own.
MOST_WORKERS_RATIO = 4


class _Left(NamedTuple):
    """One fix, and the share of the step's time that is left with it: as estimated, and at most."""

    action: str
    after: float
    at_most: float


#: What larger batches of the policy gain is not measured.
_MORE_AT_ONCE = _Left("run the model for more environments or prompts at once: each call costs much the same", 1.0, 1.0)


def fixes_for(
    cause: str | None, hot: HotFunction | None, evidence: Evidence, share: float, error: float = 0.0
) -> list[Fix]:
    """What to do about a wait for data of this ``share`` of the step, known to ``error``, best first.

    The estimates follow from what overlaps: what remains is at least the rest of the step, and what the fix leaves as
    it is (the worker's other lines; the number of cores). A line made cheaper counts as if it cost nothing, and at
    least as if it cost half. Where others hold the cores, work beside the training is promised no gain. For example,
    with a wait of 62 % and 8 cores, ``no_workers`` leaves max(0.38, 0.62 / 7, cores used now / 8) of the step:
    1 / 0.38 = 2.6x. The best is what surely leaves least: more workers before a line that may cost nothing.
    """
    certain = _ways(cause, hot, evidence, max(0.0, share - error))
    ways = zip(_ways(cause, hot, evidence, share), certain, strict=True)
    return [_fix(left, sure) for left, sure in sorted(ways, key=lambda way: way[1].at_most)]


def _fix(left: _Left, sure: _Left) -> Fix:
    """Shares of the step that are left, as gains; as in ``removing``, within ``WIDEST_RANGE``."""
    if left.after >= 1.0:
        return Fix(left.action)
    low = 1.0 / min(max(left.after, sure.at_most), WIDEST_RANGE * sure.after)
    gained = min(1.0 / left.after, WIDEST_RANGE * low)
    return Fix(left.action, gained, low, gained)


def _ways(cause: str | None, hot: HotFunction | None, evidence: Evidence, share: float) -> list[_Left]:
    """The same fixes in the same order whatever the share."""
    cores, workers = evidence.run.cores, evidence.workers
    waited = waiting_share(evidence.stacks.data_phase) if workers.number else None
    rest = 1.0 - share * (waited or 1.0)
    taken = is_held_up(evidence)
    own = hot.share if hot else float(cause in ("workers_saturated", "slow_item"))  # saturated: items set the pace
    in_trainer = _cheaper(hot, 1.0 - share * own, 1.0 - HALF * share * own)
    in_workers = _cheaper(hot, max(rest, 1.0 - own), max(rest, 1.0 - HALF * own))
    match cause:
        case "no_workers":
            spare = max(1, cores - 1)
            after = 1.0 if taken else max(rest, share / spare, evidence.run.used_cores / cores)
            loader = f"num_workers=0 -> {min(spare, 8)}, so that loading overlaps with training"
            return [_Left(loader, after, after), *(_whole_batches(evidence, share) or in_trainer)]
        case "hand_rolled_loader":
            after = 1.0 if taken else max(rest, share, evidence.run.used_cores / cores)
            return [*in_trainer, _Left("prepare the next batch in a DataLoader's workers meanwhile", after, after)]
        case "slow_thread":
            return _then(in_workers, ", or use several threads: the training thread waits for it")
        case "sampler":
            return _then(in_trainer, ": indices are drawn in the training process, one by one; draw many at once")
        case "workers_saturated":
            more = more_workers(workers, evidence.run.free_cores, rest)
            after = max(rest, workers.number / capacity(workers, evidence.run.free_cores, more))
            after = 1.0 if taken and not workers.waiting else after
            company = f"num_workers={workers.number} -> {more} on this {cores}-core machine"
            return [_Left(company, after, after), *in_workers]
        case "slow_item":
            return _then(in_workers, f": all {cores} cores are busy, more workers will not help")
        case "hand_over":
            return _less_hand_over(evidence, share)
        case "slow_collate":
            collated = ": build the batch in one operation instead of item by item"
            by_loader = [] if workers.number else _whole_batches(evidence, share)
            return by_loader or _then(in_workers if workers.number else in_trainer, collated)
        case "rollout":
            by_policy = evidence.rollout is not None and evidence.rollout.is_by_policy
            return [_MORE_AT_ONCE] if by_policy else [*in_trainer, *_side_by_side(evidence, share, taken)]
        case "disk_wait":
            action = "read fewer, larger files, cache the data set in memory or on a faster disk"
            return [_Left(action, rest, 1.0 - HALF * (1.0 - rest))]
        case _:
            return in_workers


def _cheaper(hot: HotFunction | None, after: float, halved: float) -> list[_Left]:
    """A line as if it cost nothing, and as if it took half; ``halved``: the share of the step left with half of it."""
    place = at_hot(hot) if hot else "items"
    free = _Left(f"make {place} cheaper{' (vectorise, cache, or move it to the GPU)' if hot else ''}", after, halved)
    return [free, _Left(f"make {place} twice as fast", halved, halved)]


def _whole_batches(evidence: Evidence, share: float) -> list[_Left]:
    """Where most of the wait is the loader's own work, item by item: none of it is left at best, and half at least.

    Without samples the wait has no line, and all of it counts; nothing where the user's lines take most of it.
    """
    data = evidence.stacks.data_phase
    own = 1.0 if not data.total else data.share_where(is_loaders_own) or 0.0
    if own < OWN_SHARE:
        return []
    after, halved = 1.0 - share * own, 1.0 - HALF * share * own
    return [
        _Left("make whole batches at once (__getitems__ in the data set, a vectorised collate_fn)", after, halved),
        _Left("batches that take half as long to make", halved, halved),
    ]


def _side_by_side(evidence: Evidence, share: float, taken: bool) -> list[_Left]:
    """Environments in processes of their own, on all cores but the trainer's; nothing where there are no such cores."""
    made, spare = evidence.rollout, evidence.run.cores - 1
    if made is None or not made.environment or spare < 2 or taken:
        return []
    after = 1.0 - share * made.environment * (1.0 - 1.0 / spare)
    action = f"step {spare} environments at once, each in a process of its own (a vectorised environment)"
    return [_Left(action, after, 1.0 - HALF * (1.0 - after))]


def _less_hand_over(evidence: Evidence, share: float) -> list[_Left]:
    """Without workers a batch costs what making it costs; a batch of twice the size halves what handing over costs."""
    loader, batch_ms = evidence.loader, evidence.workers.batch_ms
    larger = _Left("larger batches: each costs the same to hand over", 1.0 - HALF * share, 1.0 - HALF * HALF * share)
    if loader is None or batch_ms is None or not loader.wait_ms or batch_ms >= loader.wait_ms:
        return [larger]
    after = 1.0 - share * (1.0 - batch_ms / loader.wait_ms)
    none = f"num_workers={loader.facts.workers} -> 0: making a batch takes {batch_ms:.2g} ms, handing it over more"
    return [_Left(none, after, after), larger]


def _then(ways: list[_Left], more: str) -> list[_Left]:
    """``more`` about the first."""
    return [ways[0]._replace(action=ways[0].action + more), *ways[1:]]


def persistent_workers(loader: LoaderRow, share: float) -> Fix:
    """What to do about workers that are started anew for every epoch: 1 / (1 - share of the step in starts)."""
    cheaper = "; or fork instead of spawn" if loader.facts.context == "spawn" else ""
    kept = "the worker" if loader.facts.workers == 1 else f"the {loader.facts.workers} workers"
    gained = speedup(1.0 - share * (loader.start_share or 0.0))
    return Fix(f"persistent_workers=True keeps {kept} from epoch to epoch{cheaper}", gained, gained, gained)


def capacity(workers: Workers, free_cores: float, more: int) -> float:
    """How many of today's workers so many would be worth, if those that are new share the free cores."""
    each = max(workers.cpu_ratio or 1.0, 0.1) if workers.waiting else 1.0
    return workers.number + min(float(more - workers.number), max(0.0, free_cores) / each)


def more_workers(workers: Workers, free_cores: float, rest: float) -> int:
    """As many as keep up with the rest of the step, and as the free cores allow."""
    each = max(workers.cpu_ratio or 1.0, 0.1) if workers.waiting else 1.0
    carried = workers.number + int(max(0.0, free_cores) / each)
    wanted = ceil(workers.number / rest) if workers.waiting and rest > 0 else carried
    return max(workers.number + 1, min(carried, wanted, MOST_WORKERS_RATIO * workers.number))
