"""What to do about data that comes too late, and what it would gain."""

from __future__ import annotations

from math import ceil

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.loading import Workers, waiting_share
from tuimon.diagnosis.rules.cores import is_held_up
from tuimon.diagnosis.speedup import speedup
from tuimon.diagnosis.words import at
from tuimon.session.rows import LoaderRow

#: The workers are multiplied by at most this at once: the disk or network behind them may have limits of its own.
MOST_WORKERS_RATIO = 4


def advice(cause: str | None, hot: HotFunction | None, evidence: Evidence, share: float) -> tuple[str, float | None]:
    """What to do now, and step time now / then; ``share`` is that of the wait for data.

    The estimate follows from what overlaps: what remains is at least the rest of the step, and what the fix leaves as
    it is (the worker's other lines; the number of cores). Where others hold the cores, work beside the training is
    promised no gain. For example, with a wait of 62 % and 8 cores, ``no_workers`` leaves max(0.38, 0.62 / 7, cores
    used now / 8) of the step: 1 / 0.38 = 2.6x.
    """
    cores, workers = evidence.run.cores, evidence.workers
    waited = waiting_share(evidence.stacks.data_phase) if workers.number else None
    rest = 1.0 - share * (waited or 1.0)
    taken = is_held_up(evidence)
    cheaper = f"make {at(hot.place)} cheaper (vectorise, cache, or move it to the GPU)" if hot else "make items cheaper"
    in_trainer = speedup(1.0 - share * hot.share) if hot else None
    in_workers = speedup(max(rest, 1.0 - hot.share)) if hot else None
    match cause:
        case "no_workers":
            spare = max(1, cores - 1)
            after = 1.0 if taken else max(rest, share / spare, evidence.run.used_cores / cores)
            more = min(spare, 8)
            return f"num_workers=0 -> {more}, so that loading overlaps with training; or {cheaper}", speedup(after)
        case "hand_rolled_loader":
            after = 1.0 if taken else max(rest, share, evidence.run.used_cores / cores)
            faster = in_trainer or speedup(after)
            return f"{cheaper}; or prepare the next batch in a DataLoader's workers meanwhile", faster
        case "slow_thread":
            return f"{cheaper}, or use several threads: the training thread waits for it", in_workers
        case "sampler":
            return f"{cheaper}: indices are drawn in the training process, one by one; draw many at once", in_trainer
        case "workers_saturated":
            more = more_workers(workers, evidence.run.free_cores, rest)
            after = 1.0 if taken and not workers.waiting else max(rest, workers.number / more)
            return f"num_workers={workers.number} -> {more} on this {cores}-core machine; or {cheaper}", speedup(after)
        case "slow_item":
            return f"{cheaper}: all {cores} cores are busy, more workers will not help", in_workers
        case "slow_collate":
            faster = in_workers if workers.number else in_trainer
            return f"{cheaper}: build the batch in one operation instead of item by item", faster
        case "disk_wait":
            return "read fewer, larger files, cache the data set in memory or on a faster disk", speedup(rest)
        case _:
            return cheaper, in_workers


def starting_advice(loader: LoaderRow, share: float) -> tuple[str, float | None]:
    """What to do about workers that are started anew for every epoch, and what it would gain."""
    cheaper = "; or fork instead of spawn" if loader.facts.context == "spawn" else ""
    kept = "the worker" if loader.facts.workers == 1 else f"the {loader.facts.workers} workers"
    action = f"persistent_workers=True keeps {kept} from epoch to epoch{cheaper}"
    return action, speedup(1.0 - share * (loader.start_share or 0.0))


def more_workers(workers: Workers, free_cores: float, rest: float) -> int:
    """As many as keep up with the rest of the step, and as the free cores allow."""
    each = max(workers.cpu_ratio or 1.0, 0.1) if workers.waiting else 1.0
    carried = workers.number + int(max(0.0, free_cores) / each)
    wanted = ceil(workers.number / rest) if workers.waiting and rest > 0 else carried
    return max(workers.number + 1, min(carried, wanted, MOST_WORKERS_RATIO * workers.number))
