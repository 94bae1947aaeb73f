"""Facts about a training that waits for its data, with words and fixes for them; ``input.py`` has the causes."""

from __future__ import annotations

import math
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.cells import Cell, cells_of
from tuimon.diagnosis.evidence.data import DataProcesses, Rollout, Workers, collate_share, is_loaders_own
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import update_path
from tuimon.diagnosis.finding import Change, EditName, Fix
from tuimon.diagnosis.knowledge import READ_WHOLE
from tuimon.diagnosis.known import known_page_reads, known_work_at
from tuimon.diagnosis.line_text import WAIT_TIPS, KnownWork, callee_at, in_library, wait_of, work_at
from tuimon.diagnosis.rule import Claim
from tuimon.diagnosis.rules.advice import options
from tuimon.diagnosis.step_model import HALF, StepModel, measured_model
from tuimon.interval import WHOLE, Interval
from tuimon.native_code import NativeUse
from tuimon.session.loaders import LoaderRow
from tuimon.session.stacks.activity import WAITS
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.text import percent, size_text
from tuimon.threshold import LARGE, MIN_SAMPLES, MOST, NEARLY_ALL

#: A fix multiplies workers by at most this, if that exceeds the cores that the training leaves free: the disk or
#: network behind them may have limits of its own.
MAX_WORKERS_RATIO = 4
#: Most workers that are advised to a program without any.
MAX_FIRST_WORKERS = 8
#: Most tensors of a batch that has one tensor per field of its samples: our choice; an annotated image has some ten.
MAX_FIELDS = 16


class DataFacts(Struct, frozen=True, dict=True):
    """The facts that decide on the cause, and words for it.

    ``hot``, ``working_share`` and ``model`` are those of the training thread and the measured step until a cause sets
    them.
    """

    evidence: Evidence
    claim: Claim
    is_marked: bool  # the data phase is the time in fetches of a DataLoader, as markers show
    workers: Workers
    data_processes: DataProcesses
    loader: LoaderRow | None
    rollout: Rollout  # empty if there is none
    samples: Samples  # of the training thread in the data phase
    own: HotLine | None  # the function with most samples of the training thread
    cells: tuple[Cell, ...]  # of the data phase, without what other rules claim
    model: StepModel
    hot: HotLine | None  # the function to blame
    working_share: float | None = None  # the part of that function's time that is work; None: all of it

    def blaming(
        self, hot: HotLine | None, *, working_share: float | None = None, model: StepModel | None = None
    ) -> DataFacts:
        """The facts with a function to blame, and the model in which its work delays the data."""
        share = working_share if self.workers.number else None
        return replace(self, hot=hot, working_share=share, model=model if model is not None else self.model)

    def blaming_workers(self, hot: HotLine | None = None) -> DataFacts:
        """The same for a function of the workers, by default the one with most of their samples."""
        return self.blaming(hot or self.workers.hot, working_share=self.workers.busy_ratio)

    @cached_property
    def are_batches_ready(self) -> bool:
        """True if batches are ready at most fetches, of which samples are enough to exclude the drawing of indices."""
        return self.samples.total >= MIN_SAMPLES / 2 and self.evidence.data.has_ready_batches

    @cached_property
    def part(self) -> Interval:
        """The part of making or fetching a batch that the function to blame takes; all of it if there is none.

        A worker's samples cover all of its time, the training thread's only the data phase.
        """
        if self.hot is None:
            return WHOLE
        saves = self.known.saves if self.known is not None else 1.0
        share = min(1.0, self.hot.share / self.working_share) if self.working_share else self.hot.share
        return Interval.around(share, self.hot.error).times(saves)

    # -- fixes

    def fix(self, text: str, edit: EditName | None = None, to: float = 0.0, part: Interval = WHOLE) -> Fix:
        """A fix; ``to``: the part of the work that is left, or the number of workers. No ``edit``: an unknown gain."""
        return self.model.fix(text, Change(edit, to) if edit is not None else None, part)

    def cheaper(self, more: str = "", edit: EditName = "items") -> Fix:
        """The fix of making the function to blame cheaper, as if it cost nothing."""
        return self.fix(f"{self.cheaper_text}{more}", edit, part=self.part)

    def with_workers(self, text: str) -> Fix | None:
        """The fix of more workers, if their number is known."""
        number, cores = self.more_workers, self.evidence.cores
        if number is None or self.is_read_whole:
            return None
        if not self.workers.number and number > cores:
            text += f"; more than the {cores} cores, because items wait more than they compute"
        return self.fix(text, "workers", number)

    def whole_batches(self) -> Fix | None:
        """The fix of making whole batches, if the wait is mostly the loader's own work.

        It is not if markers show the function that makes items.
        """
        text = "make whole batches at once (__getitems__ in the dataset, a vectorised collate_fn)"
        is_measured = self.hot is not None and not self.hot.samples
        part = 0.0 if is_measured else self.samples.share(is_loaders_own) or 0.0
        return self.fix(text, "items", part=Interval.around(part)) if part >= MOST else None

    def smaller_batches(self) -> Fix | None:
        """The fix of returning less from the dataset, if torch's own collate takes long, as samples are large."""
        batches, native = self.loader and self.loader.batches, self.workers.native or self.native
        collates = collate_share(self.loader, [self.workers.samples]) or 0.0
        moves = native.share("memory", "kernel") or 0.0  # of many small fields, collate is Python
        if self.workers.hot_in_collate or not batches or min(collates, moves) < LARGE:
            return None
        if moves < (native.share("python") or 0.0):
            return None
        size = size_text(batches.total_bytes / batches.count)
        return self.fix(
            "return less from the dataset: only the part that is used (crop there), in the type that is stored (uint8,"
            f" int16), and convert it after the loader: each batch joins {size} of samples",
            "items",
        )

    # -- words

    @property
    def in_library(self) -> str:
        """The end of most headlines: the library's function and the known use of its time."""
        return in_library(self.hot, self.known)

    @property
    def workers_are(self) -> str:
        number = self.workers.number
        return {1: "the worker is", 2: "both workers are"}.get(number, f"all {number} workers are")

    @property
    def busy(self) -> str:
        return percent(min(1.0, self.workers.busy_ratio or 0.0))

    @property
    def option(self) -> str:
        """The name of the option that sets the number of workers."""
        return options(self.evidence).workers

    @property
    def batch_at_once(self) -> str:
        return ": build the batch in one operation instead of item by item" if self.known is None else ""

    @cached_property
    def cheaper_text(self) -> str:
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
        if (callee := callee_at(hot.place, self.all_samples)) is not None:
            how = f"most of it is {callee}: cache it, or call it for many items at once"
        how = how if hot.library is None else "cache what it makes"
        return f"make {work_at(hot, path)} cheaper ({how})"

    @cached_property
    def wait(self) -> str | None:
        """The wait that takes the time at the line to blame, of any thread; None if the line computes."""
        return wait_of(self.hot and self.hot.place, *self.all_samples)

    @cached_property
    def known(self) -> KnownWork | None:
        """Public knowledge about the line to blame."""
        training = next((row for row in self.evidence.threads if row.tid == self.evidence.tid), None)
        is_own = self.hot is not None and self.hot == self.own
        paged = known_page_reads(training, self.native) if training is not None and is_own else None
        if paged is not None:
            return paged
        native = NativeUse() if self.wait is not None or self.is_blocked else self.native
        found = known_work_at(self.hot and self.hot.place, *self.all_samples, native=native)
        if found is None or found.what != READ_WHOLE:
            return found
        readers = min((n for n in (self.workers.number, self.evidence.world_size) if n > 1), default=0)
        return found._replace(saves=1.0 - 1.0 / readers) if readers else None

    @property
    def is_read_whole(self) -> bool:
        """True if each worker makes, and drops, what the others make: one worker more makes it as often again."""
        return self.known is not None and self.known.what == READ_WHOLE and self.workers.number > 0

    @cached_property
    def native(self) -> NativeUse:
        """The code that runs at the line to blame, in the workers or the training thread; empty if neither is at it."""
        hot, workers = self.hot, self.workers
        if hot is not None and hot in (workers.hot, workers.hot_in_collate):
            return workers.native
        return self.evidence.native_in("data") if hot is not None and hot == self.own else NativeUse()

    @property
    def all_samples(self) -> tuple[Samples, ...]:
        """The samples of all threads that may be at the line to blame."""
        others = self.evidence.others.values()
        return self.samples, self.workers.samples, self.data_processes.making, *others

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
        most = max(MAX_WORKERS_RATIO * has if has else MAX_FIRST_WORKERS, cores - cores // 4)
        # with this many workers all cores are busy; more would take turns
        most = min(most, max(1, math.ceil(cores / max(step.batch_running, 1.0 / MAX_FIRST_WORKERS))))
        if pool is not None and pool.cores >= HALF:
            most = min(most, int((cores - step.own_running) / pool.cores))
        enough = math.ceil(step.fetches * step.batch_ms / step.own_ms) if step.own_ms > 0 else most
        numbers = ((has + 1, 2 * has) if has else (cores - 1, cores)) + (enough, most)
        return self.model.best_number(n for n in numbers if has < n <= most)

    @property
    def sure_of_hand_over(self) -> Interval:
        """The part of the wait that taking batches over less often saves: at most all of it, at least without waits for
        a core, which all waits may be if no core idles.
        """
        taken = self.evidence.machine.cores_taken
        all_busy = taken is not None and taken.idle is not None and taken.idle < HALF
        cells = [cell for cell in self.cells if cell.doing == "hand_over"]
        sure = sum(cell.share for cell in cells if not (all_busy and cell.node and cell.node.activity in WAITS))
        whole = sum(cell.share for cell in cells_of(self.evidence) if cell.phase == "data")
        return Interval(sure / whole, 1.0)

    @cached_property
    def unjoined_tensors(self) -> int | None:
        """The tensors of a batch if each sample has its own, which more tensors than fields show; else None."""
        loader = self.loader
        batches = loader.batches if loader is not None else None
        if loader is None or batches is None or batches.tensors is None:
            return None
        tensors = round(batches.tensors / batches.count)
        return tensors if tensors > max(MAX_FIELDS, loader.facts.batch_size or 0) else None

    @cached_property
    def single_process_ratio(self) -> float | None:
        """The ratio of the environments' time in one process to that in several; None unless it is clearly below 1.

        They compute for the same time in either case; the rest of the time goes to messages, and to waits for these.
        """
        senders, model = self.data_processes, self.model
        waited = self.rollout.environment * model.likely.batch_ms / model.step_ms
        fetches = self.loader is not None or self.samples.part(below="fetch") > 0
        if fetches or not senders.number or senders.cpu_ratio is None or not waited:
            return None
        if senders.making.part(doing=WAITS) >= LARGE:
            return None  # they would sleep, or wait for others, as long
        computing = senders.number * senders.cpu_ratio / waited
        return computing if computing < NEARLY_ALL else None


def facts_of(evidence: Evidence, claim: Claim) -> DataFacts:
    """The facts about the wait for data that the rule claims."""
    data, own = evidence.phases.row("data"), evidence.hottest_in("data")
    return DataFacts(
        evidence=evidence,
        claim=claim,
        is_marked=data is not None and not data.estimated and not evidence.phases.inferred,
        workers=evidence.data.workers,
        data_processes=evidence.data.data_processes,
        loader=evidence.data.loader,
        rollout=evidence.data.rollout or Rollout(0.0, 0.0, 0.0),
        samples=evidence.data.samples,
        own=own,
        cells=tuple(
            cell
            for cell in cells_of(evidence)
            if cell.phase == "data" and cell.doing not in ("gc", "pace") and not {"core", "gil"} & {*cell.via}
        ),
        model=measured_model(evidence, claim.lost),
        hot=own,
    )
