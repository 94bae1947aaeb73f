"""The rule about the input: whether the training waits for its data, the cause, and the fixes.

Each cause is a function. They take cells of the data phase in turn; the one that takes most is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.diagnosis.cells import Cell
from tuimon.diagnosis.evidence.data import HAND_OVER_MS, ONE_THREAD, collating_function
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import whole_sequences
from tuimon.diagnosis.evidence.process import works
from tuimon.diagnosis.finding import Finding, Fix, Severity, bounds, new_finding
from tuimon.diagnosis.knowledge import POLLING
from tuimon.diagnosis.known import figures
from tuimon.diagnosis.line_text import CHANGES_TRAINING, KEEP_STATE, WAIT_TIPS, at_hot, idle_part, views_text
from tuimon.diagnosis.rule import claim_on, is_sure
from tuimon.diagnosis.rules.advice import options
from tuimon.diagnosis.rules.input_facts import MAX_FIELDS, DataFacts, facts_of
from tuimon.diagnosis.rules.side_work import sleep_that_paces
from tuimon.diagnosis.step_model import HALF, StepModel
from tuimon.interval import Interval
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.text import ms_text, percent
from tuimon.threshold import LARGE, MOST, REPORTED


class Reason(NamedTuple):
    """A cause in words."""

    facts: DataFacts  # with the function to blame, and the model of a step whose data comes late for this reason
    clause: str  # the end of the headline
    fixes: Sequence[Fix | None]  # None: it does not apply
    keeps_order: bool = False  # fixes are not sorted by gain: a fault is mended first
    severity: Severity = "warning"  # if the gain of the first fix is unknown


class Cause(NamedTuple):
    """A cause: it takes cells of the data phase that the causes before it have left."""

    name: str | None  # as findings name it
    reason: Callable[[DataFacts], Reason]
    takes: Callable[[Cell], bool]
    when: Callable[[DataFacts], bool]


#: In the order in which they take cells: that of the functions below.
CAUSES = list[Cause]()


def _cause(
    name: str | None,
    takes: Callable[[Cell], bool] = lambda cell: True,
    when: Callable[[DataFacts], bool] = lambda f: True,
) -> Callable[[Callable[[DataFacts], Reason]], Callable[[DataFacts], Reason]]:
    """Add the function as a cause to ``CAUSES``."""

    def add(reason: Callable[[DataFacts], Reason]) -> Callable[[DataFacts], Reason]:
        CAUSES.append(Cause(name, reason, takes, when))
        return reason

    return add


def _is_of_workers(cell: Cell) -> bool:
    return cell.via[:1] == ("batch",) or cell.doing == "hand_over"


def _is_by_process(cell: Cell) -> bool:
    return cell.via[:1] == ("process",)


# -- models of a step for makers of data other than a DataLoader


def _after_the_fetch(facts: DataFacts) -> StepModel:
    """The model in which the loop itself makes batches from fetched data, whatever other processes do."""
    model = facts.model
    if not facts.workers.number and not facts.data_processes.number:
        return model
    here = [replace(step, workers=0, fetches=1, batch_running=1.0, drawing_ms=0.0, starts_ms=0.0) for step in model[:2]]
    for n, lost in enumerate((facts.claim.lost.middle, facts.claim.lost.low)):
        batch_ms = max(0.0, lost) * model.step_ms
        here[n] = replace(here[n], batch_ms=batch_ms, own_ms=model.step_ms - batch_ms)
    return model._replace(likely=here[0], certain=here[1])


def _in_thread(facts: DataFacts) -> StepModel:
    """The model in which the thread that makes the data is the one worker, and sets the pace."""
    model = facts.model
    one = [replace(step, workers=1, batch_ms=model.step_ms, hand_over_ms=0.0, drawing_ms=0.0) for step in model[:2]]
    return model._replace(likely=one[0], certain=one[1])


# -- the causes


@_cause(None, lambda cell: cell.doing == "start")
def _starting(f: DataFacts) -> Reason:
    f, each = f.blaming(None), f.evidence.data.batches_per_iterator
    if each is None:
        return Reason(f, ": its workers are restarted for every epoch", ())
    # its workers make the first batch while the loop waits; more workers would not help
    once = "make the iterator once, outside the loop, and take all batches from it: the next ones are then prefetched"
    batches = "batch" if each < 2 else f"{each} batches"
    return Reason(f, f": a new iterator is made for every {batches}", [f.fix(once, "starts")])


@_cause("rollout", when=lambda f: f.rollout.is_by_policy)
def _policy(f: DataFacts) -> Reason:
    f = f.blaming(f.own, model=_after_the_fetch(f))
    more = f.fix("run the model for more environments or prompts at once: each call costs about the same")
    again = whole_sequences(f.samples)
    keep = f.fix(KEEP_STATE) if again is not None and again.share >= REPORTED else None
    whole = ", over whole sequences for each token" if keep is not None else ""
    clause = f": the loop runs the model to generate the data{whole}{f.in_library}"
    return Reason(f, clause, [keep, None if keep is not None else more], severity="info")


@_cause("rollout", when=lambda f: f.evidence.data.rollout is not None and not f.rollout.is_by_policy)
def _environment(f: DataFacts) -> Reason:
    senders, ratio, part = f.data_processes, f.single_process_ratio, Interval.around(f.rollout.environment)
    messages = f.samples.part(below="messages") >= MOST * f.rollout.environment or f.awaits_processes(messages=True)
    messages, cores = senders.number > 0 and (messages or ratio is not None), f.evidence.cores
    is_theirs = f.awaits_processes(messages=False) or (messages and ratio is None)
    f = f.blaming((senders.making.hottest() if is_theirs else None) or f.own, model=_after_the_fetch(f))
    makes = f"steps the environment{f.in_library}"
    if senders.number and (messages or is_theirs):
        makes = f"waits for {'messages of ' * messages}environments in {senders.number} processes"
        makes += f", which compute {percent(senders.cpu_ratio)} of the time" if ratio and senders.cpu_ratio else ""
    several = (
        f"step {cores - 1} environments at once, each in a process of its own ({options(f.evidence).environments})"
    )
    together = (
        "step the environments in the training process (a synchronous vectorised environment: SyncVectorEnv,"
        " DummyVecEnv): their processes wait for messages more than they compute"
    )
    is_room = cores > 2 and not (senders.number or f.is_held_up)
    fixes = [
        f.cheaper() if ratio is None else None,
        f.fix(several, "items", 1.0 / (cores - 1), part) if is_room else None,
        f.fix(together, "items", ratio, part) if ratio is not None else None,
    ]
    return Reason(f, f": the loop {makes}", fixes)


@_cause("sampler", lambda cell: cell.doing == "draw")
def _sampler(f: DataFacts) -> Reason:
    f = f.blaming(
        f.samples.with_callees(f.samples.hottest(f.evidence.data.draws)), working_share=f.evidence.data.working_share
    )
    fewer = (
        "draw only the indices that an epoch takes: RandomSampler(data, replacement=True, num_samples=n); or"
        " those of the next epoch in a thread while this one trains"
    )
    is_torchs = f.hot is None or f.hot.place.code in f.evidence.samples.training_path
    fixes = [
        f.fix(fewer, "fetch", part=f.part) if is_torchs else None,
        f.cheaper(", or draw the next epoch's indices in a thread while this one trains", "fetch"),
    ]
    return Reason(f, f": the training process draws the indices{f.in_library}", fixes)


@_cause(
    "hand_rolled_loader",
    _is_by_process,
    lambda f: f.awaits_processes(messages=True) and f.data_processes.hardly_computes,
)
def _slow_sender(f: DataFacts) -> Reason:
    f = f.blaming(f.data_processes.waiting or f.own)
    leave = (
        f"leave it if the data come at that pace; else see what {at_hot(f.hot) if f.hot is not None else ''} waits for,"
        " and let it send ahead, in fewer and larger messages"
    )
    clause = f": another process sends it, and hardly computes{f.in_library}"
    return Reason(f, clause, [f.fix(leave)], severity="info")


@_cause("hand_rolled_loader", _is_by_process)
def _sender(f: DataFacts) -> Reason:
    # a manager's process runs no user code
    f = f.blaming(f.data_processes.making.hottest() or f.own, model=_after_the_fetch(f))
    more = ", or make the data in more processes" if f.evidence.machine.free_cores >= HALF else ""
    return Reason(f, f": another process makes it{f.in_library}", [f.cheaper(more)])


@_cause("slow_item", lambda cell: cell.doing == "order", lambda f: not f.workers.crowd_cores)
def _late_batch(f: DataFacts) -> Reason:
    f, loader = f.blaming_workers(), f.loader
    any_order = "set in_order=False: batches then come as soon as they are made, in a different order"
    is_ordered = loader is not None and loader.facts.in_order
    fixes = [f.fix(any_order, "in_order", 1.0) if is_ordered else None, f.cheaper()]
    late = ms_text((loader.late_ms if loader is not None else None) or 0.0)
    return Reason(f, f": the next batch is {late} late, while later ones are ready{f.in_library}", fixes)


@_cause("hand_over", _is_of_workers, lambda f: f.evidence.data.views is not None)
def _views(f: DataFacts) -> Reason:
    views = f.evidence.data.views
    assert views is not None
    what, copied = views_text(views)
    f, left = f.blaming(views.item and HotLine(views.item, 1.0, 0)), views.batch_bytes / views.storage_bytes
    return Reason(f, f": {what}", [Fix(copied).with_upper_bound(1.0 / (1.0 - f.claim.share * (1.0 - left)))])


@_cause("hand_over", lambda cell: cell.doing == "hand_over", lambda f: f.are_batches_ready)
def _hand_over(f: DataFacts) -> Reason:
    tensors, wait_ms = f.unjoined_tensors, f.loader.wait_ms if f.loader is not None else None
    f = f.blaming((f.workers.hot_in_collate if tensors else None) or f.own)
    text = f"set num_workers=0 (now {f.workers.number}): handing a batch over takes longer than making it"
    none = f.fix(text, "workers")
    fixes = [none] if none.most > 1.0 else []
    if tensors is None:
        larger = f"use larger batches: each costs the same to hand over ({CHANGES_TRAINING})"
        fixes.append(f.fix(larger, "fetch", part=f.sure_of_hand_over)._replace(changes_training=True))
    else:
        join = (
            f"join the {tensors} tensors of a batch in the collate_fn, one for each field, or send NumPy arrays:"
            " each tensor is handed over separately"
        )
        left = HAND_OVER_MS / max(HAND_OVER_MS, f.model.likely.hand_over_ms) + MAX_FIELDS / tensors
        fixes.insert(0, f.fix(join, "fetch", min(1.0, left)))
    fetch = ms_text(wait_ms) if wait_ms is not None else "long"
    clause = f": batches are ready, but each takes {fetch} to hand over"
    return Reason(f, clause, fixes, keeps_order=tensors is not None)


@_cause("idle_workers", _is_of_workers, lambda f: f.workers.idle > 0 and f.workers.are_saturated)
def _idle_workers(f: DataFacts) -> Reason:
    f, number, started = f.blaming_workers(), f.workers.number, f.workers.started
    share = (
        f"give each of the {started} workers its share of the data (get_worker_info(), {started} shards or more); or"
        f" set {f.option}={number} (now {started}), which is as fast"
    )
    clause = f": all batches come from {number} of {started} workers{f.in_library}"
    return Reason(f, clause, [f.fix(share, "workers", started), f.cheaper()], keeps_order=True)


@_cause("disk_wait", lambda cell: _is_of_workers(cell) and cell.doing == "io", lambda f: f.workers.disk_ratio >= LARGE)
def _disk_wait(f: DataFacts) -> Reason:
    f = f.blaming_workers()
    read = f.fix("read fewer, larger files, or cache the dataset in memory or on a faster disk", "items")
    fixes = [read, f.cheaper() if f.known is not None else None]
    return Reason(f, f": the workers wait for the disk{f.in_library}", fixes)


@_cause("slow_collate", lambda cell: _is_of_workers(cell) and cell.doing == "collate")
def _workers_collate(f: DataFacts) -> Reason:
    f = f.blaming_workers(f.workers.hot_in_collate)
    fixes = [f.smaller_batches(), f.cheaper(f.batch_at_once)]
    return Reason(f, f": the workers collate batches{f.in_library}", fixes, keeps_order=True)


@_cause("slow_item", _is_of_workers, lambda f: f.workers.crowd_cores)
def _crowded_workers(f: DataFacts) -> Reason:
    f, threads = f.blaming_workers(), f"{f.workers.threads:.0f} threads in each"
    clause = f": {f.workers_are} {f.busy} busy, with {threads} that wait for {f.evidence.cores} cores{f.in_library}"
    return Reason(f, clause, [f.fix(ONE_THREAD), f.cheaper()], keeps_order=True, severity="critical")


@_cause(None, _is_of_workers, lambda f: not f.workers.are_saturated)
def _some_work(f: DataFacts) -> Reason:
    f = f.blaming_workers()
    return Reason(f, f": the workers prepare it{f.in_library}", [f.cheaper()])


@_cause(
    "workers_saturated",
    _is_of_workers,
    lambda f: f.workers.waiting or f.evidence.machine.free_cores >= MOST * min(1.0, f.workers.ran_ratio or 1.0),
)
def _saturated_workers(f: DataFacts) -> Reason:
    f, workers, do = f.blaming_workers(), f.workers, f"{f.busy} busy"
    more = f"set {f.option}={f.more_workers} (now {workers.number}) on this {f.evidence.cores}-core machine"
    if workers.waiting:  # further workers take no core from others
        why = f"each {WAIT_TIPS[f.wait].what.rstrip(',')}" if f.wait is not None else "disk, network or sleep"
        do = f"blocked, not computing ({percent(workers.cpu_ratio or 0.0)} CPU): {why}"
        more += f": each computes only {percent(workers.ran_ratio or 0.0)} of its time"
    if f.wait == "lock":  # more workers would wait for it as well; without it all make batches at once, not in turn
        takers = max(2, workers.number * max(1, f.evidence.world_size))  # all ranks' workers, or another program
        fix = f.fix(f.cheaper_text, "items", 1.0 / takers)
        return Reason(f, f": {f.workers_are} {do}{f.in_library}", [fix], keeps_order=workers.waiting)
    fixes = [f.with_workers(more), f.smaller_batches(), f.cheaper()]
    return Reason(f, f": {f.workers_are} {do}{f.in_library}", fixes, keeps_order=workers.waiting)


@_cause("slow_item", _is_of_workers)
def _busy_workers(f: DataFacts) -> Reason:
    f = f.blaming_workers()
    fix = f.cheaper(": all cores are busy, so more workers would need more of them")
    return Reason(f, f": {f.workers_are} {f.busy} busy{f.in_library}", [f.smaller_batches(), fix], keeps_order=True)


@_cause(None, when=lambda f: f.workers.gone)
def _gone_workers(f: DataFacts) -> Reason:
    return Reason(f, f": its workers have just ended{f.in_library}", [f.cheaper()])


@_cause(
    "hand_rolled_loader",
    lambda cell: cell.via[:1] == ("thread",) and cell.node is not None and cell.node.has("messages"),
    lambda f: not f.is_marked,
)
def _pickling_thread(f: DataFacts) -> Reason:
    f = f.blaming(f.own, model=_in_thread(f))
    once = (
        "pass large arguments to the other processes once, not with each task: Pool(initializer=, initargs=), or"
        " globals set before they are forked; and large arrays as tensors in shared memory (share_memory_())"
    )
    return Reason(f, f": a thread pickles what it sends to other processes{f.in_library}", [f.fix(once, "items")])


@_cause("hand_rolled_loader", lambda cell: cell.via[:1] == ("thread",), lambda f: not f.is_marked)
def _thread(f: DataFacts) -> Reason:
    f = f.blaming(Samples.joined(f.evidence.others.values()).hottest(works), model=_in_thread(f))
    fix = f.cheaper(", or make batches in several processes: the training thread waits for them")
    return Reason(f, f": it is prepared in a thread{f.in_library}", [fix])


@_cause(
    "hand_rolled_loader",
    lambda cell: not cell.via and cell.node is not None and not cell.node.has("fetch"),
    lambda f: not f.is_marked,
)
def _loop_itself(f: DataFacts) -> Reason:
    f = f.blaming(f.own, model=_after_the_fetch(f))
    clause = f": the training process prepares it{f.in_library}"
    if f.workers.number:
        return Reason(f, clause, [f.cheaper(", or move it into the dataset: the workers then do it")])
    workers = f.with_workers("prepare the next batch in DataLoader workers during the step")
    return Reason(f, clause, [f.cheaper(), workers])


@_cause("slow_collate", lambda cell: cell.doing == "collate")
def _collate(f: DataFacts) -> Reason:
    f = f.blaming(collating_function(f.samples, f.samples.part(below="collates")))
    fix = f.smaller_batches() or f.whole_batches() or f.cheaper(f.batch_at_once)
    return Reason(f, f": the training process collates batches{f.in_library}", [fix])


@_cause("no_workers")
def _no_workers(f: DataFacts) -> Reason:
    pool = f.evidence.data.pool
    f = f.blaming((pool and pool.hot) or f.own)
    who, how = "the training process prepares it", ": loading then overlaps with training"
    if pool is not None:
        who = "threads of the training process prepare it"
        how = (
            " and multiprocessing_context='spawn': threads of this process make the items, which a forked"
            " worker would wait for in vain"
        )
    once = "make the iterator once, outside the loop, and " if f.evidence.data.batches_per_iterator is not None else ""
    workers = f.with_workers(f"{once}set {f.option}={f.more_workers} (now 0){how}")
    return Reason(f, f": {who}{f.in_library}", [workers, f.whole_batches() or f.cheaper()])


def _cause_of(facts: DataFacts) -> Cause:
    """The cause that takes most of the data phase."""
    taken, left = dict[int, float](), facts.cells
    for number, cause in enumerate(CAUSES):
        if cause.when(facts):
            taken[number] = sum(cell.share for cell in left if cause.takes(cell))
            left = tuple(cell for cell in left if not cause.takes(cell))
    return CAUSES[max(reversed(taken), key=taken.__getitem__)]


def _keeping_workers(f: DataFacts) -> list[Fix]:
    """Fixes for any cause, if workers are started again and again."""
    fixes = list[Fix]()
    if f.model.likely.starts_ms <= 0.0:
        return fixes
    if f.loader is None or not f.loader.facts.persistent:
        # a new iterator for a few batches still waits for its first one
        left = f.loader.first_fetch_share or 0.0 if f.loader and f.evidence.data.batches_per_iterator else 0.0
        fixes.append(f.fix("set persistent_workers=True: workers then stay from epoch to epoch", "starts", left))
    if not f.are_batches_ready:
        none = f"set num_workers=0 (now {f.workers.number}): starting workers takes longer than making the batches"
        fixes.append(f.fix(none, "workers"))
    return fixes


def input_bound(evidence: Evidence) -> Finding | None:
    """The step waits for data."""
    data = evidence.phases.row("data")
    if data is None or data.share < REPORTED or evidence.gpu.awaits_times:
        return None
    if (paced := sleep_that_paces(evidence, "data")) is not None:
        return paced
    claim = claim_on(evidence, "data", "copy", "gc", "pace")
    if not is_sure(evidence, claim.share, error=claim.error):
        return None
    facts = facts_of(evidence, claim)
    cause = _cause_of(facts)
    facts, clause, fixes, keeps_order, severity = cause.reason(facts)
    found = [*filter(None, fixes), *_keeping_workers(facts)]
    if facts.known is not None and facts.known.what == POLLING:  # more workers poll as well
        found.sort(key=lambda fix: facts.cheaper_text not in fix.action)
    elif not keeps_order:  # of those that gain the same, to a reader, the cause's first stays first
        found.sort(key=lambda fix: -round(fix.least or 1.0, 1))
    best, *others = found
    waits = f"{percent(claim.share)} of each step waits"
    if claim.on_gpu is not None:
        waits = f"the GPU waits {idle_part(claim.on_gpu)} of each step"
    return new_finding(
        f"{waits} for data{clause}",
        best,
        *(fix for fix in others if fix.estimated_speedup is not None),
        severity=severity,
        cause=cause.name,
        share=claim.share,
        at=(facts.hot, facts.own),
        evidence={
            "data_ms_per_step": claim.ms_per_step,
            "step_ms": evidence.phases.mean_ms,
            "workers": facts.workers.number,
            "worker_cpu_ratio": facts.workers.cpu_ratio,
            "worker_busy_ratio": facts.workers.busy_ratio,
            "hot_share": facts.hot.share if facts.hot and facts.hot.samples else None,
            **figures(facts.native),
            **(
                {f"{part}_share": of for part, of in facts.rollout._asdict().items()} if cause.name == "rollout" else {}
            ),
            **(bounds("gpu_waits", claim.on_gpu) if claim.on_gpu is not None else {}),
        },
    )
