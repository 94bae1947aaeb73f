"""Why the data of a training comes late."""

from __future__ import annotations

from msgspec import Struct

from tuimon.diagnosis.evidence.batches import (
    drawing_function,
    draws_for_longer,
    draws_indices,
    is_held_back,
    is_outside_collate,
    late_worker,
    lie_ready,
    may_draw,
    own_collate_share,
    working_share,
)
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.steps import LongestSteps
from tuimon.diagnosis.evidence.threads import producer, thread_wait
from tuimon.diagnosis.evidence.workers import SATURATED_BUSY, EpochStarts, Workers, user_place
from tuimon.diagnosis.threshold import LARGE, MIN_SAMPLES, MOST, REPORTED
from tuimon.diagnosis.words import in_library, percent
from tuimon.session.rows import HotLine, LoaderRow, PhaseRow, PhaseTable
from tuimon.session.stacks.samples import Samples
from tuimon.text import ms_text, size_text


class Cause(Struct, frozen=True, gc=False):
    """Why the data comes late: the cause's name, the place to inspect, and the headline's end, without the place."""

    name: str | None
    hot: HotLine | None
    clause: str


def cause_of(evidence: Evidence, table: PhaseTable, data: PhaseRow) -> Cause:
    """The cause: the starts of workers where they take most of the wait, else what makes the data."""
    starts = long_starts(evidence)
    if starts is not None:
        return Cause("starting", None, f": {_starts_and_ends(starts)}")
    return _beside_rollout(evidence, data) or _cause(evidence, _is_made_by_hand(evidence, data, table))


def _beside_rollout(evidence: Evidence, data: PhaseRow) -> Cause | None:
    """A function beside a rollout that takes longer than the environment; the policy is the training's own work."""
    beside, rollout = evidence.beside_rollout, evidence.rollout
    if beside is None or data.share * beside.share < REPORTED:
        return None
    if rollout is not None and beside.share <= rollout.environment:
        return None
    return Cause("hand_rolled_loader", beside, f", {percent(beside.share)} of that in one function{in_library(beside)}")


def long_starts(evidence: Evidence) -> EpochStarts | None:
    """The starts of workers anew for each epoch, if they are most of the wait."""
    starts = evidence.epoch_starts
    return starts if starts is not None and starts.share >= MOST else None


def _is_made_by_hand(evidence: Evidence, data: PhaseRow, table: PhaseTable) -> bool:
    """True if the loop itself makes most of its data, as markers or samples show: without a DataLoader, or after it.

    Samples show it however few they are: a single one in a DataLoader is one that is there.
    """
    samples = evidence.data_samples
    return (data.estimated or table.inferred) and samples.part(below="fetch") < MOST


def _cause(evidence: Evidence, by_hand: bool) -> Cause:
    """``by_hand``: most of it is made in the loop, outside every fetch of a DataLoader."""
    workers, own, data = evidence.workers, evidence.hottest_in("data"), evidence.data_samples
    drawing, drawn_by = data.share(draws_indices(data)), drawing_function(data)
    if evidence.rollout is not None:
        return Cause("rollout", own, f": the loop {evidence.rollout.maker}{in_library(own)}")
    if drawn_by is not None and drawing is not None and drawing >= MOST:
        return _drawing(drawn_by, evidence)
    if by_hand and (data.share(lambda node: node.awaits_message) or 0.0) >= MOST:
        waits_there = (
            own is not None and data.part(lambda node: node.awaits_message and node.function == own.function) > 0
        )
        return _sent(evidence.senders.working, own if waits_there else None)
    made_here = by_hand and own is not None and data.total >= MIN_SAMPLES
    if not made_here and evidence.loader is not None and is_held_back(evidence.loader, workers):
        return Cause("held_back", workers.hot, _late(evidence.loader) + in_library(workers.hot))
    if workers.number and not made_here and not may_draw(data) and lie_ready(evidence.loader, workers, data):
        if drawn_by is not None and draws_for_longer(data):
            return _drawing(drawn_by, evidence)
        return Cause("hand_over", own, f": batches are ready, but each takes {_fetch_ms(evidence)} to hand over")
    if workers.number and not made_here:
        return _cause_in_workers(workers, evidence)
    if workers.gone:
        return Cause(None, own, ": its workers have just ended")
    return _made_in_loop(own, evidence) if by_hand else _in_its_process(own, evidence)


def _in_its_process(own: HotLine | None, evidence: Evidence) -> Cause:
    """The cause where a DataLoader without workers has the training process make its batches."""
    data = evidence.data_samples
    if thread_wait(data) >= MOST and (made_at := _made_by_children(evidence)) is not None:
        return _sent(made_at, None)
    if evidence.pool is not None:
        hot = evidence.pool.hot or own
        return Cause("no_workers", hot, f": threads of the training process prepare it{in_library(hot)}")
    if own is not None and (own_collate_share(evidence.loader, data) or 0.0) >= MOST:
        if is_outside_collate(own, data):  # a default one is torch's
            at = user_place(evidence.loader.facts.collate) if evidence.loader is not None else None
            hot = HotLine(at, own_collate_share(evidence.loader, data) or 0.0, 0, 0) if at is not None else None
            return Cause("slow_collate", hot, ": the training process collates batches")
        return Cause("slow_collate", own, f": the training process collates batches{in_library(own)}")
    return Cause("no_workers", own, _prepares(own, data))


def _made_in_loop(own: HotLine | None, evidence: Evidence) -> Cause:
    """The same where the loop makes them itself, or a thread of its."""
    thread = producer(evidence.samples, list(evidence.other_threads.values()))
    if thread is not None:
        return Cause("slow_thread", thread, f": it is prepared in a thread{in_library(thread)}")
    return Cause("hand_rolled_loader", own, _prepares(own, evidence.data_samples))


def _prepares(own: HotLine | None, data: Samples) -> str:
    remote = (data.share(below="network") or 0.0) >= MOST
    return f": the training process {'reads it over the network' if remote else 'prepares it'}{in_library(own)}"


def _made_by_children(evidence: Evidence) -> HotLine | None:
    """Where other processes work, if they use more of the cores than the threads that could make the data here."""
    senders, pool = evidence.senders, evidence.pool
    cores = senders.number * (senders.cpu_ratio or 0.0)
    return senders.working if pool is None or cores > pool.cpu_ratio else None


def _sent(made_at: HotLine | None, awaited_at: HotLine | None) -> Cause:
    """Data that other processes send: where they make it, else where the training waits for it."""
    if made_at is not None:
        return Cause("messages", made_at, f": another process makes it{in_library(made_at)}")
    return Cause("messages", awaited_at, f": it is sent to the training{in_library(awaited_at)}")


def _drawing(hot: HotLine, evidence: Evidence) -> Cause:
    few = draws_in_few(evidence)
    when = f", mostly in {few.steps} of {few.of:,} steps" if few is not None else ""
    return Cause("sampler", hot, f": the training process draws the indices{when}{in_library(hot)}")


def _cause_in_workers(workers: Workers, evidence: Evidence) -> Cause:
    hot, again = workers.hot, evidence.read_again
    anew = f", {size_text(again.epoch_bytes)} is read anew every epoch" if again is not None else ""
    if workers.idle and (workers.busy_ratio or 0.0) >= SATURATED_BUSY:
        return Cause("idle_workers", hot, f": {_some(workers)}{in_library(hot)}")
    if workers.disk_ratio >= LARGE:
        return Cause("disk_wait", hot, f": the workers wait for the disk{anew}")
    collating, share = workers.hot_in_collate, workers.collate_share or 0.0
    collating = collating._replace(share=share * collating.share) if collating is not None else hot
    if collating is not None and share >= MOST:
        return Cause("slow_collate", collating, f": the workers collate batches{in_library(collating)}")
    if workers.busy_ratio is None or workers.busy_ratio < SATURATED_BUSY:
        return Cause(None, hot, f": the workers make it{in_library(hot)}" if hot else "")
    are = f"{_all(workers)} {'is' if workers.number == 1 else 'are'}"
    if workers.waiting:
        cpu = f" ({percent(workers.cpu_ratio)} CPU)" if workers.cpu_ratio is not None else ""
        how = "waiting for the network" if workers.on_network else "blocked"
        on = "" if hot else ": disk, network or sleep"
        clause = f": {are} {how}, not computing{cpu}{on}{in_library(hot)}{anew}"
        return Cause("workers_saturated", hot, clause)
    clause = f": {are} {percent(min(1.0, workers.busy_ratio))} busy{in_library(hot)}"
    room = evidence.run.free_cores >= MOST * min(1.0, workers.ran_ratio or 1.0)
    return Cause("workers_saturated" if room else "slow_item", hot, clause)


def _starts_and_ends(starts: EpochStarts) -> str:
    each_s = starts.each_s
    if each_s is None:
        return "its workers are started anew for every epoch"
    what = "starting and ending workers" if starts.end_s else "starting workers"
    return f"{what} takes {each_s:.1f} s an epoch" if each_s >= 0.1 else f"{what} takes {1e3 * each_s:.0f} ms an epoch"


def _fetch_ms(evidence: Evidence) -> str:
    loader = evidence.loader
    return f"{ms_text(loader.wait_ms)}" if loader is not None and loader.wait_ms is not None else "long"


def _late(loader: LoaderRow) -> str:
    """How seldom the next batch in order comes late, how late, and from where."""
    late_ms = loader.late_ms or 0.0
    worker = late_worker(loader)
    of = f" ({worker})" if worker is not None else ""
    every = max(1, round(late_ms / (loader.held_ms or late_ms)))
    return f": 1 batch in {every} is {ms_text(late_ms)} late{of}, later ones lie ready"


def _some(workers: Workers) -> str:
    make = "makes all batches" if workers.number == 1 else "make all batches"
    rest = "the other one idles" if workers.idle == 1 else "the others idle"
    return f"{workers.number} of {workers.number + workers.idle} workers {make}, {rest}"


def _all(workers: Workers) -> str:
    return {1: "the worker", 2: "both workers"}.get(workers.number, f"all {workers.number} workers")


def draws_in_few(evidence: Evidence) -> LongestSteps | None:
    """The few steps in which most of the time goes that drawing indices takes: where an epoch begins; else None."""
    samples, data = evidence.data_samples, evidence.phase("data")
    drawing = samples.share(draws_indices(samples))
    if drawing is None or data is None or data.ms_per_step is None:
        return None
    return evidence.longest_steps(drawing * data.ms_per_step)


def working_part(evidence: Evidence) -> float | None:
    """The share of its fetches in which the training thread works itself, where workers make the batches."""
    return working_share(evidence.data_samples) if evidence.workers.number else None
