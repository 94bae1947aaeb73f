"""The rule about the input: whether the training waits for its data, the cause, and the remedies. Each cause is a row.

The rows take cells of the data phase in turn; the cause is the row that takes most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.cells import Cell, cells_of
from tuimon.diagnosis.evidence.data import (
    HAND_OVER_MS,
    ONE_THREAD,
    Rollout,
    Workers,
    collating_function,
    is_loaders_own,
)
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import update_path
from tuimon.diagnosis.evidence.process import works
from tuimon.diagnosis.finding import Change, EditName, Finding, Fix, Severity, bounds, verdict
from tuimon.diagnosis.known import POLLING, figures, known_of, known_of_pages
from tuimon.diagnosis.rule import Claim, claim_on, is_sure
from tuimon.diagnosis.rules.advice import options
from tuimon.diagnosis.rules.side_work import sleep_that_paces
from tuimon.diagnosis.step_model import HALF, StepModel, measured_model
from tuimon.diagnosis.words import (
    CHANGES_TRAINING,
    WAIT_TIPS,
    Known,
    at_hot,
    callee_at,
    idle_part,
    in_library,
    percent,
    wait_of,
    work_at,
)
from tuimon.interval import WHOLE, Interval
from tuimon.native_code import NativeUse
from tuimon.session.loaders import LoaderRow
from tuimon.session.stacks.activity import WAITS
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.text import ms_text
from tuimon.threshold import LARGE, MIN_SAMPLES, MOST, REPORTED

#: Workers are multiplied at once by at most this, if that exceeds the cores that the training leaves free: the disk or
#: network behind them may have limits of its own.
MOST_WORKERS_RATIO = 4
#: Most workers that are advised to a program without any.
MOST_FIRST_WORKERS = 8
#: Most tensors of a batch that has one tensor per field of its samples: our choice; an annotated image has some ten.
_MOST_FIELDS = 16


class Facts(Struct, frozen=True, dict=True):
    """The facts that the rows use, and the words for their templates."""

    evidence: Evidence
    claim: Claim
    is_marked: bool  # the data phase is the time in fetches of a DataLoader, as markers show
    workers: Workers
    loader: LoaderRow | None
    rollout: Rollout  # empty if there is none
    samples: Samples  # of the training thread in the data phase
    own: HotLine | None  # the function with most samples of the training thread
    cells: tuple[Cell, ...]  # of the data phase, without what other rules claim

    @cached_property
    def cause(self) -> Cause:
        """The row that takes most of the data phase; each row takes cells that the rows before it have left."""
        taken, left = dict[int, float](), self.cells
        for number, row in enumerate(CAUSES):
            if row.when(self):
                taken[number] = sum(cell.share for cell in left if row.takes(cell))
                left = tuple(cell for cell in left if not row.takes(cell))
        return CAUSES[max(reversed(taken), key=taken.__getitem__)]

    @cached_property
    def lie_ready(self) -> bool:
        """True if batches lie ready, and fetches have enough samples to exclude the drawing of indices."""
        return self.samples.total >= MIN_SAMPLES / 2 and self.evidence.data.lie_ready

    @cached_property
    def hot(self) -> HotLine | None:
        """The function that is to blame."""
        return self.cause.at(self)

    @cached_property
    def part(self) -> Interval:
        """The part of making or fetching a batch that the function to blame takes; all of it if there is none.

        A worker's samples cover all of its time, the training thread's only the data phase.
        """
        if self.hot is None:
            return WHOLE
        saves = self.known.saves if self.known is not None else 1.0
        whole = self.cause.whole(self) if self.workers.number else None
        return Interval.around(min(1.0, self.hot.share / whole) if whole else self.hot.share, self.hot.error).times(
            saves
        )

    @cached_property
    def model(self) -> StepModel:
        return self.cause.model(measured_model(self.evidence, self.claim.lost), self)

    @cached_property
    def words(self) -> dict[str, object]:
        """The words that templates can insert."""
        evidence, workers, loader, hot = self.evidence, self.workers, self.loader, self.hot
        senders, each = evidence.data.senders.number, evidence.data.of_iterator
        why = f"each {WAIT_TIPS[self.wait].what.rstrip(',')}" if self.wait is not None else "disk, network or sleep"
        blocked = f"blocked, not computing ({percent(workers.cpu_ratio or 0.0)} CPU): {why}"
        busy, threads = percent(min(1.0, workers.busy_ratio or 0.0)), evidence.data.pool is not None
        messages = self.awaits_messages or self.in_this_process is not None
        return {
            "at": in_library(hot, self.known),
            "cores": evidence.cores,
            "workers": workers,
            "are": {1: "the worker is", 2: "both workers are"}.get(workers.number, f"all {workers.number} workers are"),
            "busy": busy,
            "computing": f": each computes only {percent(workers.ran_ratio or 0.0)} of its time" * workers.waiting,
            "do": blocked if workers.waiting else f"{busy} busy",
            "late": ms_text((loader.late_ms if loader is not None else None) or 0.0),
            "fetch": ms_text(loader.wait_ms) if loader is not None and loader.wait_ms is not None else "long",
            "makes": f"waits for {'messages of ' * messages}environments in {senders} processes"
            if self.is_by_processes or messages
            else "steps the environment",
            "spare": evidence.cores - 1,
            "option": options(evidence).workers,
            "vectorised": options(evidence).environments,
            "starts": "its workers are restarted for every epoch"
            if each is None
            else f"a new iterator is made for every {'batch' if each < 2 else f'{each} batches'}",
            "once": "make the iterator once, outside the loop, and " if each is not None else "",
            "preparers": "threads of the training process prepare it"
            if threads
            else "the training process prepares it",
            "in_workers": " and multiprocessing_context='spawn': threads of this process make the items, which a forked"
            " worker would wait for in vain"
            if threads
            else ": loading then overlaps with training",
            "sender": at_hot(hot) if hot is not None else "",
            "or_more": ", or make the data in more processes" if evidence.here.free_cores >= HALF else "",
            "cheaper": self._cheaper(),
            "tensors": self.apart,
        }

    def _cheaper(self) -> str:
        """``make augment() data.py:31 cheaper (cache it)``: the advice, by public knowledge about that line or by its
        wait.

        A line of the loop itself that only takes items is not named.
        """
        path, hot = update_path(self.evidence.samples), self.hot
        takes = self.samples.part(lambda node: hot is not None and node.place == hot.place, below="fetch") > 0
        if hot is None or (takes and hot.library is None and hot.place.code in path):
            return "make each item cheaper" if self.known is None else self.known.action
        if self.known is not None:
            return f"make {work_at(hot, path)} cheaper ({self.known.action})"
        wait = self.wait or ("io" if self.is_blocked else None)
        if wait is not None:
            return WAIT_TIPS[wait].less.format(work_at(hot, path))
        if hot.library is not None and (option := options(self.evidence).without_conversion(hot.library)):
            return option
        on_gpu = self.evidence.gpu.is_used is not False
        how = "vectorise, cache, or move it to the GPU" if on_gpu else "vectorise or cache it"
        if (callee := callee_at(hot.place, self.everyones)) is not None:
            how = f"most of it is {callee}: cache it, or call it for many items at once"
        how = how if hot.library is None else "cache what it makes"
        return f"make {work_at(hot, path)} cheaper ({how})"

    @cached_property
    def wait(self) -> str | None:
        """The wait that takes the time at the line to blame, of any thread; None if the line computes."""
        return wait_of(self.hot and self.hot.place, *self.everyones)

    @cached_property
    def known(self) -> Known | None:
        """Public knowledge about the line to blame."""
        training = next((row for row in self.evidence.threads if row.tid == self.evidence.tid), None)
        is_own = self.hot is not None and self.hot == self.own
        paged = known_of_pages(training, self.native) if training is not None and is_own else None
        if paged is not None:
            return paged
        native = NativeUse() if self.wait is not None or self.is_blocked else self.native
        return known_of(self.hot and self.hot.place, *self.everyones, native=native)

    @cached_property
    def native(self) -> NativeUse:
        """The code that runs at the line to blame, in the workers or the training thread; empty if neither is at it."""
        hot, workers = self.hot, self.workers
        if hot is not None and hot in (workers.hot, workers.hot_in_collate):
            return workers.native
        return self.evidence.native_in("data") if hot is not None and hot == self.own else NativeUse()

    @property
    def everyones(self) -> tuple[Samples, ...]:
        """The samples of all threads that may be at the line to blame."""
        others = self.evidence.others.values()
        return self.samples, self.workers.samples, self.evidence.data.senders.making, *others

    # -- figures

    @property
    def is_blocked(self) -> bool:
        """True if the line to blame is the workers', and their CPU time is far below the wall time."""
        return self.workers.waiting and self.hot == self.workers.hot

    @cached_property
    def is_by_processes(self) -> bool:
        """True if the training thread mostly waits for other processes to make data, rather than for their messages."""
        return self._awaits_processes(messages=False)

    @cached_property
    def awaits_messages(self) -> bool:
        """True if it mostly waits for the messages of other processes, which hardly make data meanwhile."""
        return self.evidence.data.senders.number > 0 and self._awaits_processes(messages=True)

    def _awaits_processes(self, *, messages: bool) -> bool:
        by_them = (cell for cell in self.cells if cell.via[:1] == ("process",))
        part = sum(cell.share for cell in by_them if (cell.doing == "message") is messages)
        return part >= MOST * sum(cell.share for cell in self.cells)

    @property
    def is_held_up(self) -> bool:
        """True if the training thread waits for a core so often that no core can be free for more workers."""
        return (self.evidence.training.delay_ratio or 0.0) >= LARGE

    @cached_property
    def more_workers(self) -> int | None:
        """The smallest higher number of workers that gains as much as any; None if others hold the cores they need."""
        has, pool, step = self.workers.number, self.evidence.data.pool, self.model.likely
        cores = self.evidence.cores
        if self.is_held_up and step.batch_running >= HALF:
            return None
        # a quarter of the cores is left to the main, autograd and pinning threads: our choice
        most = max(MOST_WORKERS_RATIO * has if has else MOST_FIRST_WORKERS, cores - cores // 4)
        # with this many workers all cores are busy; more would take turns
        most = min(most, max(1, math.ceil(cores / max(step.batch_running, 1.0 / MOST_FIRST_WORKERS))))
        if pool is not None and pool.cores >= HALF:
            most = min(most, int((cores - step.own_running) / pool.cores))
        enough = math.ceil(step.fetches * step.batch_ms / step.own_ms) if step.own_ms > 0 else most
        numbers = ((has + 1, 2 * has) if has else (cores - 1, cores)) + (enough, most)
        return self.model.best_number(n for n in numbers if has < n <= most)

    @cached_property
    def apart(self) -> int | None:
        """Tensors of a batch, if samples keep their own: more than a batch has fields and samples; else None."""
        loader = self.loader
        batches = loader.batches if loader is not None else None
        if loader is None or batches is None or batches.tensors is None:
            return None
        tensors = round(batches.tensors / batches.count)
        return tensors if tensors > max(_MOST_FIELDS, loader.facts.batch_size or 0) else None

    @property
    def loaders_own(self) -> float:
        """The part of the wait that is the loader's own work; 0 if markers show the function that makes items."""
        is_measured = self.hot is not None and not self.hot.samples
        return 0.0 if is_measured else self.samples.share(is_loaders_own) or 0.0

    @cached_property
    def in_this_process(self) -> float | None:
        """The ratio of the environments' time in one process to that in several; None unless it is below one half.

        They compute for the same time in either case; the rest of the time goes to messages.
        """
        senders, model = self.evidence.data.senders, self.model
        waited = self.rollout.environment * model.likely.batch_ms / model.step_ms
        fetches = self.loader is not None or self.samples.part(below="fetch") > 0
        if fetches or not senders.number or senders.cpu_ratio is None or not waited:
            return None
        if senders.making.part(doing=WAITS) >= LARGE:
            return None  # they would sleep, or wait for others, as long
        computing = senders.number * senders.cpu_ratio / waited
        return computing if computing <= HALF else None


# -- rows


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
    model: Callable[[StepModel, Facts], StepModel] = lambda model, f: model
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


def _collating(facts: Facts) -> HotLine | None:
    """The user's function that collates items into batches."""
    place = facts.evidence.data.own(facts.loader.facts.collate) if facts.loader is not None else None
    return HotLine(place, 1.0, 0) if place is not None else None


def _after_the_fetch(model: StepModel, facts: Facts) -> StepModel:
    """The model in which the loop itself makes batches of what it has fetched, whatever other processes do."""
    if not facts.workers.number and not facts.evidence.data.senders.number:
        return model
    here = [replace(step, workers=0, fetches=1, batch_running=1.0, drawing_ms=0.0, starts_ms=0.0) for step in model[:2]]
    for n, lost in enumerate((facts.claim.lost.middle, facts.claim.lost.low)):
        batch_ms = max(0.0, lost) * model.step_ms
        here[n] = replace(here[n], batch_ms=batch_ms, own_ms=model.step_ms - batch_ms)
    return model._replace(likely=here[0], certain=here[1])


def _in_thread(model: StepModel, _: Facts) -> StepModel:
    """The model in which the thread that makes the data is the one worker, and sets the pace."""
    one = [replace(step, workers=1, batch_ms=model.step_ms, hand_over_ms=0.0, drawing_ms=0.0) for step in model[:2]]
    return model._replace(likely=one[0], certain=one[1])


_AT_ONCE = ": build the batch in one operation instead of item by item"
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
                when=lambda f: f.evidence.cores > 2 and not (f.evidence.data.senders.number or f.is_held_up),
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
        at=lambda f: (f.evidence.data.senders.making.hottest() if f.is_by_processes else None) or f.own,
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
        when=lambda f: f.awaits_messages and f.evidence.data.senders.waiting is not None,
        at=lambda f: f.evidence.data.senders.waiting,
        severity="info",
    ),
    Cause(
        "hand_rolled_loader",
        ": another process makes it{at}",
        (_cheaper("{or_more}"),),
        takes=lambda cell: cell.via[:1] == ("process",),
        # a manager's process runs no code of the user's
        at=lambda f: f.evidence.data.senders.making.hottest() or f.own,
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
                "set num_workers=0 (now {workers.number}): handing a batch over takes longer than making it", "workers"
            ),
            Remedy(
                "join the {tensors} tensors of a batch in the collate_fn, one for each field, or send NumPy arrays:"
                " each tensor is handed over separately",
                "fetch",
                to=lambda f: (
                    min(1.0, HAND_OVER_MS / max(HAND_OVER_MS, f.model.likely.hand_over_ms) + _MOST_FIELDS / f.apart)
                    if f.apart
                    else None
                ),
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
        at=lambda f: (_collating(f) if f.apart else None) or f.own,
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
        (_cheaper(_AT_ONCE),),
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
        (_WHOLE_BATCHES, _cheaper(_AT_ONCE, when=lambda f: f.loaders_own < MOST)),
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
    facts = Facts(
        evidence=evidence,
        claim=claim,
        is_marked=not data.estimated and not evidence.phases.inferred,
        workers=evidence.data.workers,
        loader=evidence.data.loader,
        rollout=evidence.data.rollout or Rollout(0.0, 0.0, 0.0),
        samples=evidence.data.samples,
        own=evidence.hottest_in("data"),
        cells=tuple(
            cell
            for cell in cells_of(evidence)
            if cell.phase == "data" and cell.doing not in ("gc", "pace") and not {"core", "gil"} & {*cell.via}
        ),
    )
    cause, remedies = facts.cause, [*facts.cause.remedies, *_KEEPING]
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
