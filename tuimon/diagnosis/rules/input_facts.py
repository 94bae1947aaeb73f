"""What is known of a training that waits for its data, and the words for it; ``input.py`` holds the causes."""

from __future__ import annotations

import math
from functools import cached_property

from msgspec import Struct

from tuimon.diagnosis.cells import Cell, cells_of
from tuimon.diagnosis.evidence.data import Rollout, Senders, Workers, is_loaders_own
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import update_path
from tuimon.diagnosis.known import known_of, known_of_pages
from tuimon.diagnosis.rule import Claim
from tuimon.diagnosis.rules.advice import options
from tuimon.diagnosis.step_model import HALF, StepModel, measured_model
from tuimon.diagnosis.words import WAIT_TIPS, Known, at_hot, callee_at, in_library, percent, wait_of, work_at
from tuimon.interval import WHOLE, Interval
from tuimon.native_code import NativeUse
from tuimon.session.loaders import LoaderRow
from tuimon.session.stacks.activity import WAITS
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.text import ms_text
from tuimon.threshold import LARGE, MIN_SAMPLES, MOST

#: Workers are multiplied at once by at most this, if that exceeds the cores that the training leaves free: the disk or
#: network behind them may have limits of its own.
MOST_WORKERS_RATIO = 4
#: Most workers that are advised to a program without any.
MOST_FIRST_WORKERS = 8
#: Most tensors of a batch that has one tensor per field of its samples: our choice; an annotated image has some ten.
MOST_FIELDS = 16


class Facts(Struct, frozen=True, dict=True):
    """The facts that the rows use, and the words for their templates.

    A row brings ``hot``, ``whole`` and ``model``; until it is found nothing is to blame, and the model is as measured.
    """

    evidence: Evidence
    claim: Claim
    is_marked: bool  # the data phase is the time in fetches of a DataLoader, as markers show
    workers: Workers
    senders: Senders
    loader: LoaderRow | None
    rollout: Rollout  # empty if there is none
    samples: Samples  # of the training thread in the data phase
    own: HotLine | None  # the function with most samples of the training thread
    cells: tuple[Cell, ...]  # of the data phase, without what other rules claim
    model: StepModel
    hot: HotLine | None = None  # the function to blame
    whole: float | None = None  # the part of that function's time that is work; None: all of it

    @cached_property
    def lie_ready(self) -> bool:
        """True if batches lie ready, and fetches have enough samples to exclude the drawing of indices."""
        return self.samples.total >= MIN_SAMPLES / 2 and self.evidence.data.lie_ready

    @cached_property
    def part(self) -> Interval:
        """The part of making or fetching a batch that the function to blame takes; all of it if there is none.

        A worker's samples cover all of its time, the training thread's only the data phase.
        """
        if self.hot is None:
            return WHOLE
        saves = self.known.saves if self.known is not None else 1.0
        share = min(1.0, self.hot.share / self.whole) if self.whole else self.hot.share
        return Interval.around(share, self.hot.error).times(saves)

    @cached_property
    def words(self) -> dict[str, object]:
        """The words that templates can insert."""
        evidence, workers, loader, hot = self.evidence, self.workers, self.loader, self.hot
        senders, each = self.senders.number, evidence.data.of_iterator
        messages = self.awaits_processes(messages=True) or self.in_this_process is not None
        why = f"each {WAIT_TIPS[self.wait].what.rstrip(',')}" if self.wait is not None else "disk, network or sleep"
        blocked = f"blocked, not computing ({percent(workers.cpu_ratio or 0.0)} CPU): {why}"
        busy, threads = percent(min(1.0, workers.busy_ratio or 0.0)), evidence.data.pool is not None
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
            if senders and (messages or self.awaits_processes(messages=False))
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
            "at_once": ": build the batch in one operation instead of item by item" if self.known is None else "",
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
        return self.samples, self.workers.samples, self.senders.making, *others

    # -- figures

    @property
    def is_blocked(self) -> bool:
        """True if the line to blame is the workers', and their CPU time is far below the wall time."""
        return self.workers.waiting and self.hot == self.workers.hot

    def awaits_processes(self, *, messages: bool) -> bool:
        """True if the training thread mostly waits for other processes to make data; or only to send ``messages``."""
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
        return tensors if tensors > max(MOST_FIELDS, loader.facts.batch_size or 0) else None

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
        senders, model = self.senders, self.model
        waited = self.rollout.environment * model.likely.batch_ms / model.step_ms
        fetches = self.loader is not None or self.samples.part(below="fetch") > 0
        if fetches or not senders.number or senders.cpu_ratio is None or not waited:
            return None
        if senders.making.part(doing=WAITS) >= LARGE:
            return None  # they would sleep, or wait for others, as long
        computing = senders.number * senders.cpu_ratio / waited
        return computing if computing <= HALF else None


def facts_of(evidence: Evidence, claim: Claim) -> Facts:
    """The facts about the wait for data that the rule claims."""
    data = evidence.phases.row("data")
    return Facts(
        evidence=evidence,
        claim=claim,
        is_marked=data is not None and not data.estimated and not evidence.phases.inferred,
        workers=evidence.data.workers,
        senders=evidence.data.senders,
        loader=evidence.data.loader,
        rollout=evidence.data.rollout or Rollout(0.0, 0.0, 0.0),
        samples=evidence.data.samples,
        own=evidence.hottest_in("data"),
        cells=tuple(
            cell
            for cell in cells_of(evidence)
            if cell.phase == "data" and cell.doing not in ("gc", "pace") and not {"core", "gil"} & {*cell.via}
        ),
        model=measured_model(evidence, claim.lost),
    )
