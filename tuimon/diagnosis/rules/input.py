"""The rule about the input: whether the training waits for its data, the cause, and the remedies. Each cause is a row.

The rows take cells of the data phase in turn; the cause is the row that takes most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.cells import Cell
from tuimon.diagnosis.evidence.data import HAND_OVER_MS, ONE_THREAD, collating_function
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.process import works
from tuimon.diagnosis.finding import Change, EditName, Finding, Fix, Severity, bounds, verdict
from tuimon.diagnosis.known import POLLING, figures
from tuimon.diagnosis.rule import claim_on, is_sure
from tuimon.diagnosis.rules.input_facts import MOST_FIELDS, Facts, facts_of
from tuimon.diagnosis.rules.side_work import sleep_that_paces
from tuimon.diagnosis.step_model import StepModel
from tuimon.diagnosis.words import CHANGES_TRAINING, idle_part, percent
from tuimon.interval import WHOLE, Interval
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.threshold import LARGE, MOST, REPORTED


class Remedy(NamedTuple):
    """A change of the step: ``text`` is a template over the facts, ``to`` the part left, or the number of workers."""

    text: str
    edit: EditName | None = None  # None: its gain is unknown
    to: Callable[[Facts], float | None] = lambda f: 0.0  # None: the remedy does not apply
    part: Callable[[Facts], Interval] = lambda f: WHOLE
    when: Callable[[Facts], bool] = lambda f: True
    changes_training: bool = False

    def fix(self, facts: Facts) -> Fix | None:
        """The fix; None if the remedy does not apply."""
        to = self.to(facts) if self.when(facts) else None
        if to is None:
            return None
        change, cores = Change(self.edit, to) if self.edit is not None else None, facts.evidence.cores
        text = self.text.format(n=f"{to:.0f}", **facts.words)
        if self.edit == "workers" and not facts.workers.number and to > cores:
            text += f"; more than the {cores} cores, because items wait more than they compute"
        return facts.model.fix(text, change, self.part(facts), self.changes_training)


class Cause(Struct, frozen=True):
    """A row of the table: a reason why the data comes late."""

    name: str | None  # as findings name it
    clause: str  # the end of the headline, a template over the facts
    remedies: tuple[Remedy, ...]
    takes: Callable[[Cell], bool] = lambda cell: True
    when: Callable[[Facts], bool] = lambda f: True
    at: Callable[[Facts], HotLine | None] = lambda f: f.own
    whole: Callable[[Facts], float | None] = lambda f: None  # the part of that function's time that is work
    model: Callable[[Facts], StepModel] = lambda f: f.model
    in_order: Callable[[Facts], bool] = lambda f: False  # remedies are not sorted by gain: a fault is mended first
    severity: Severity = "warning"  # if the gain of the first remedy is unknown


def _cheaper(more: str = "", edit: EditName = "items", when: Callable[[Facts], bool] = lambda f: True) -> Remedy:
    """The remedy of making the function to blame cheaper, as if it cost nothing."""
    return Remedy(f"{{cheaper}}{more}", edit, part=lambda f: f.part, when=when)


def _is_of_workers(cell: Cell) -> bool:
    return cell.via[:1] == ("batch",) or cell.doing == "hand_over"


#: The remedy of more workers.
_workers = partial(Remedy, edit="workers", to=lambda f: f.more_workers)
#: A row that takes the workers' work during waits for a batch.
_of_workers = partial(Cause, takes=_is_of_workers, at=lambda f: f.workers.hot, whole=lambda f: f.workers.busy_ratio)


def _after_the_fetch(facts: Facts) -> StepModel:
    """The model in which the loop itself makes batches of what it has fetched, whatever other processes do."""
    model = facts.model
    if not facts.workers.number and not facts.senders.number:
        return model
    here = [replace(step, workers=0, fetches=1, batch_running=1.0, drawing_ms=0.0, starts_ms=0.0) for step in model[:2]]
    for n, lost in enumerate((facts.claim.lost.middle, facts.claim.lost.low)):
        batch_ms = max(0.0, lost) * model.step_ms
        here[n] = replace(here[n], batch_ms=batch_ms, own_ms=model.step_ms - batch_ms)
    return model._replace(likely=here[0], certain=here[1])


def _in_thread(facts: Facts) -> StepModel:
    """The model in which the thread that makes the data is the one worker, and sets the pace."""
    model = facts.model
    one = [replace(step, workers=1, batch_ms=model.step_ms, hand_over_ms=0.0, drawing_ms=0.0) for step in model[:2]]
    return model._replace(likely=one[0], certain=one[1])


#: Remedies for any cause.
_KEEPING = (
    Remedy(
        "set persistent_workers=True: workers then stay from epoch to epoch",
        "starts",
        # a new iterator for a few batches still waits for its first one
        to=lambda f: f.loader.first_fetch_share or 0.0 if f.loader and f.evidence.data.of_iterator else 0.0,
        when=lambda f: f.model.likely.starts_ms > 0.0 and not (f.loader is not None and f.loader.facts.persistent),
    ),
    Remedy(
        "set num_workers=0 (now {workers.number}): starting workers takes longer than making the batches",
        "workers",
        when=lambda f: f.model.likely.starts_ms > 0.0 and not f.lie_ready,
    ),
)
_WHOLE_BATCHES = Remedy(
    "make whole batches at once (__getitems__ in the data set, a vectorised collate_fn)",
    "items",
    part=lambda f: Interval.around(f.loaders_own),
    when=lambda f: f.loaders_own >= MOST,
)
CAUSES = (
    Cause(
        None,
        ": {starts}",
        (
            Remedy(  # its workers make the first batch while the loop waits; more workers would not help
                "make the iterator once, outside the loop, and take all batches from it: the next ones are then"
                " prefetched",
                "starts",
                when=lambda f: f.evidence.data.of_iterator is not None,
            ),
        ),
        lambda cell: cell.doing == "start",
        at=lambda f: None,
    ),
    Cause(
        "rollout",
        ": the loop runs the model to generate the data{at}",
        (Remedy("run the model for more environments or prompts at once: each call costs about the same"),),
        when=lambda f: f.rollout.is_by_policy,
        model=_after_the_fetch,
        severity="info",
    ),
    Cause(
        "rollout",
        ": the loop {makes}{at}",
        (
            _cheaper(when=lambda f: f.in_this_process is None),
            Remedy(
                "step {spare} environments at once, each in a process of its own ({vectorised})",
                "items",
                to=lambda f: 1.0 / (f.evidence.cores - 1),
                part=lambda f: Interval.around(f.rollout.environment),
                when=lambda f: f.evidence.cores > 2 and not (f.senders.number or f.is_held_up),
            ),
            Remedy(
                "step the environments in the training process (a synchronous vectorised environment): messages to"
                " their processes cost more than they compute",
                "items",
                to=lambda f: f.in_this_process,
                part=lambda f: Interval.around(f.rollout.environment),
            ),
        ),
        when=lambda f: f.evidence.data.rollout is not None and not f.rollout.is_by_policy,
        at=lambda f: (f.senders.making.hottest() if f.awaits_processes(messages=False) else None) or f.own,
        model=_after_the_fetch,
    ),
    Cause(
        "sampler",
        ": the training process draws the indices{at}",
        (
            Remedy(
                "draw only the indices that an epoch takes: RandomSampler(data, replacement=True, num_samples=n); or"
                " those of the next epoch in a thread while this one trains",
                "fetch",
                part=lambda f: f.part,
                when=lambda f: f.hot is None or f.hot.place.code in f.evidence.samples.training_path,  # torch's sampler
            ),
            _cheaper(", or draw the next epoch's indices in a thread while this one trains", "fetch"),
        ),
        takes=lambda cell: cell.doing == "draw",
        at=lambda f: f.samples.with_callees(f.samples.hottest(f.evidence.data.draws)),
        whole=lambda f: f.evidence.data.working_share,
    ),
    Cause(
        "hand_rolled_loader",
        ": another process sends it, and hardly computes{at}",
        (
            Remedy(
                "leave it if the data come at that pace; else see what {sender} waits for, and let it send ahead, in"
                " fewer and larger messages"
            ),
        ),
        takes=lambda cell: cell.via[:1] == ("process",),
        when=lambda f: f.awaits_processes(messages=True) and f.senders.hardly_computes,
        at=lambda f: f.senders.waiting or f.own,
        severity="info",
    ),
    Cause(
        "hand_rolled_loader",
        ": another process makes it{at}",
        (_cheaper("{or_more}"),),
        takes=lambda cell: cell.via[:1] == ("process",),
        # a manager's process runs no code of the user's
        at=lambda f: f.senders.making.hottest() or f.own,
        model=_after_the_fetch,
    ),
    _of_workers(
        "slow_item",
        ": the next batch is {late} late, later ones lie ready{at}",
        (
            Remedy(
                "set in_order=False: batches then come as soon as they are made, in a different order",
                "in_order",
                to=lambda f: 1.0,
                when=lambda f: f.loader is not None and bool(f.loader.facts.in_order),
            ),
            _cheaper(),
        ),
        takes=lambda cell: cell.doing == "order",
        when=lambda f: not f.workers.crowd_cores,  # one worker is late by chance
    ),
    Cause(
        "hand_over",
        ": batches are ready, but each takes {fetch} to hand over",
        (
            Remedy(
                "join the {tensors} tensors of a batch in the collate_fn, one for each field, or send NumPy arrays:"
                " each tensor is handed over separately",
                "fetch",
                to=lambda f: (
                    min(1.0, HAND_OVER_MS / max(HAND_OVER_MS, f.model.likely.hand_over_ms) + MOST_FIELDS / f.apart)
                    if f.apart
                    else None
                ),
            ),
            Remedy(
                "set num_workers=0 (now {workers.number}): handing a batch over takes longer than making it", "workers"
            ),
            Remedy(
                f"use larger batches: each costs the same to hand over ({CHANGES_TRAINING})",
                "fetch",
                when=lambda f: f.apart is None,
                changes_training=True,
            ),
        ),
        takes=lambda cell: cell.doing == "hand_over",
        when=lambda f: f.lie_ready,
        at=lambda f: (f.workers.hot_in_collate if f.apart else None) or f.own,
        in_order=lambda f: f.apart is not None,
    ),
    _of_workers(
        "idle_workers",
        ": all batches come from {workers.number} of {workers.started} workers{at}",
        (
            Remedy(
                "give each of the {workers.started} workers its share of the data (get_worker_info(), {workers.started}"
                " shards or more); or set {option}={workers.number} (now {workers.started}), which is as fast",
                "workers",
                to=lambda f: f.workers.started,
            ),
            _cheaper(),
        ),
        when=lambda f: f.workers.idle > 0 and f.workers.are_saturated,
        in_order=lambda f: True,
    ),
    _of_workers(
        "disk_wait",
        ": the workers wait for the disk{at}",
        (
            Remedy("read fewer, larger files, or cache the data set in memory or on a faster disk", "items"),
            _cheaper(when=lambda f: f.known is not None),
        ),
        takes=lambda cell: _is_of_workers(cell) and cell.doing == "io",
        when=lambda f: f.workers.disk_ratio >= LARGE,
    ),
    _of_workers(
        "slow_collate",
        ": the workers collate batches{at}",
        (_cheaper("{at_once}"),),
        takes=lambda cell: _is_of_workers(cell) and cell.doing == "collate",
        at=lambda f: f.workers.hot_in_collate or f.workers.hot,
    ),
    _of_workers(
        "slow_item",
        ": {are} {busy} busy, with {workers.threads:.0f} threads in each that wait for {cores} cores{at}",
        (Remedy(ONE_THREAD), _cheaper()),
        when=lambda f: f.workers.crowd_cores,
        in_order=lambda f: True,
        severity="critical",
    ),
    _of_workers(None, ": the workers prepare it{at}", (_cheaper(),), when=lambda f: not f.workers.are_saturated),
    _of_workers(
        "workers_saturated",
        ": {are} {do}{at}",
        (
            _workers(
                "set {option}={n} (now {workers.number}) on this {cores}-core machine{computing}",
                when=lambda f: f.wait != "lock",  # more workers would wait for the lock as well
            ),
            _cheaper(when=lambda f: f.wait != "lock"),
            Remedy(  # without the lock all workers make batches at once, and not in turn
                "{cheaper}", "items", to=lambda f: 1.0 / f.workers.number, when=lambda f: f.wait == "lock"
            ),
        ),
        when=lambda f: f.workers.waiting or f.evidence.here.free_cores >= MOST * min(1.0, f.workers.ran_ratio or 1.0),
        in_order=lambda f: f.workers.waiting,  # further workers take no core from others
    ),
    _of_workers(
        "slow_item",
        ": {are} {busy} busy{at}",
        (_cheaper(": all {cores} cores are busy, so more workers would need more cores"),),
    ),
    Cause(None, ": its workers have just ended{at}", (_cheaper(),), when=lambda f: f.workers.gone),
    Cause(
        "hand_rolled_loader",
        ": it is prepared in a thread{at}",
        (_cheaper(", or make it in several processes: the training thread waits for it"),),
        takes=lambda cell: cell.via[:1] == ("thread",),
        when=lambda f: not f.is_marked,
        at=lambda f: Samples.joined(f.evidence.others.values()).hottest(works),
        model=_in_thread,
    ),
    Cause(
        "hand_rolled_loader",
        ": the training process prepares it{at}",
        (
            _cheaper(", or move it into the data set: the workers then do it", when=lambda f: f.workers.number > 0),
            _cheaper(when=lambda f: not f.workers.number),
            _workers(
                "prepare the next batch in DataLoader workers during the step", when=lambda f: not f.workers.number
            ),
        ),
        takes=lambda cell: not cell.via and cell.node is not None and not cell.node.has("fetch"),
        when=lambda f: not f.is_marked,
        model=_after_the_fetch,
    ),
    Cause(
        "slow_collate",
        ": the training process collates batches{at}",
        (_WHOLE_BATCHES, _cheaper("{at_once}", when=lambda f: f.loaders_own < MOST)),
        takes=lambda cell: cell.doing == "collate",
        at=lambda f: collating_function(f.samples, f.samples.part(below="collates")),
    ),
    Cause(
        "no_workers",
        ": {preparers}{at}",
        (
            _workers("{once}set {option}={n} (now 0){in_workers}"),
            _WHOLE_BATCHES,
            _cheaper(when=lambda f: f.loaders_own < MOST),
        ),
        at=lambda f: (f.evidence.data.pool and f.evidence.data.pool.hot) or f.own,
    ),
)


def _cause_of(facts: Facts) -> Cause:
    """The row that takes most of the data phase; each row takes cells that the rows before it have left."""
    taken, left = dict[int, float](), facts.cells
    for number, row in enumerate(CAUSES):
        if row.when(facts):
            taken[number] = sum(cell.share for cell in left if row.takes(cell))
            left = tuple(cell for cell in left if not row.takes(cell))
    return CAUSES[max(reversed(taken), key=taken.__getitem__)]


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
    whole = cause.whole(facts) if facts.workers.number else None
    facts = replace(facts, hot=cause.at(facts), whole=whole, model=cause.model(facts))
    remedies = [*cause.remedies, *_KEEPING]
    polls = facts.known is not None and facts.known.what == POLLING
    if polls:  # more workers poll as well
        remedies.sort(key=lambda each: "{cheaper}" not in each.text)
    found = [each for remedy in remedies if (each := remedy.fix(facts)) is not None]
    if not polls and not cause.in_order(facts):  # of those that gain the same, to a reader, the row's first stays first
        found.sort(key=lambda fix: -round(fix.least or 1.0, 1))
    best, *others = found
    waits = f"{percent(claim.share)} of each step waits"
    if claim.on_gpu is not None:
        waits = f"the GPU waits {idle_part(claim.on_gpu)} of each step"
    return verdict(
        f"{waits} for data{cause.clause.format_map(facts.words)}",
        best,
        *(fix for fix in others if fix.estimated_speedup is not None),
        severity=cause.severity,
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
