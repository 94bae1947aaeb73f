"""The work of a process outside its steps (import, set-up), and work in steps that markers do not show (compilation,
checkpoints).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import replace

from tuimon.records import TRAINING_PHASES, Compiler, CompilerEvents, CompilerWork, Place, Stacks, Steps
from tuimon.session.series import FEW_ROWS, WHOLE_RUN, KeyNumbers, Series, Span, Stretch, row_of
from tuimon.session.stacks.activity import Activity, Work, WorkBeside, imported_at
from tuimon.session.stacks.loop import MIN_REST_SAMPLES
from tuimon.session.stacks.trie import StackNode, Window, place_of
from tuimon.torch_code import is_compiler, is_worker_loop


class CompilerStats:
    """The events of torch.compile in one process."""

    def __init__(self) -> None:
        self._series = Series(Stretch, FEW_ROWS)
        self._events = KeyNumbers[CompilerEvents](2)  # without count and time; how often each came, and its ns

    def add_record(self, record: Compiler) -> None:
        events = ((replace(each, count=1, total_ns=0), each.count, each.total_ns) for each in record.events)
        self._series.fold(record, self._events.counts(events))

    def events(self, *whats: CompilerWork, span: Span = WHOLE_RUN) -> list[CompilerEvents]:
        """The events of a span; those that took longest, or came most often, first."""
        figures = self._events.figures(self._series.counts(span)).items()
        found = [replace(event, count=n, total_ns=ns) for event, (n, ns) in figures if event.what in whats]
        return sorted(found, key=lambda event: (-event.total_ns, -event.count))


class Checkpoints(Struct, frozen=True):
    """The checkpoints since the first steps: bursts of writing, and the time in which samples show that one is saved.

    Worked example: ten bursts of 1 GB, and 4 s in which checkpoints are saved. So each takes 400 ms, in which 2.5 GB
    are written a second.
    """

    number: int | None  # None: too close together to be counted
    size_bytes: int  # of all of them
    seconds: float  # for which they held the training up, together
    file_system: str  # its type: "nfs4"; "" if unknown

    @property
    def each_bytes(self) -> float | None:
        return self.size_bytes / self.number if self.number else None

    @property
    def each_ms(self) -> float | None:
        """How long one checkpoint holds the training up."""
        return 1e3 * self.seconds / self.number if self.number else None

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.seconds


COMPILING = "compiling"
AWAITS_PROCESSES = "waiting for its processes"
#: Words for activities that no phase of a loop explains; all others are "computing".
_WORDS: dict[Activity, str] = {
    "io": "reading or writing",
    "network": "reading or writing",
    "connection": "reading or writing",
    "message": "waiting for another process",
    "lock": "waiting",
    "thread": "waiting",
    "ranks": "waiting for other ranks",
    "sleep": "sleeping",
    "prompt": "at a prompt",
    "transfer": "moving tensors",
}
RUNS_MODEL = "running the model"
_PHASES = {
    "data": "preparing data",
    "forward": RUNS_MODEL,
    "backward": "running backward",
    "optimizer": "running the optimizer",
}


class UnmarkedSteps:
    """The thread that makes the steps; they begin with the first window in which a thread is in backward, or in an
    update.

    Until then a thread that fetches from a DataLoader and runs a model may evaluate before it trains, or never train.
    Once there are enough samples to have shown an update, a thread without one counts as making steps without updates.
    As with markers, its steps are then batches, until a first update shows that they were an evaluation.
    """

    def __init__(self) -> None:
        self.have_begun = False
        self._cycles: int | None = 0  # passes through backward that samples have counted; None: too fast to count
        self._fetching: Counter[str] | None = None  # samples of the main thread by boundary, since its first fetch
        self._fetching_since_s = 0.0

    @property
    def has_whole_step(self) -> bool:
        """True if samples have shown a whole step: what they show before that belongs to the set-up."""
        return self.have_begun if self._cycles is None else self._cycles >= 2  # their beginnings enclose one whole step

    @property
    def forward_since_s(self) -> float | None:
        """The moment from which on it fetches batches and runs a model on them without training; None if unknown."""
        counts = self._fetching
        if self.have_begun or counts is None or not counts["forward"] or counts.total() < MIN_REST_SAMPLES:
            return None
        return self._fetching_since_s

    def add_window(self, window: Window, cycles: int | None, known: int) -> int | None:
        """Fold a window. Returns the thread that trains in it, the ``known`` one before others; None if none does."""
        tids = {tid for tid, counts in window.counts.items() if any(_trains(node, tid == known) for node in counts)}
        tid = known if known in tids else None if self.have_begun else min(tids, default=None)
        if tid is not None:
            self.have_begun = True
            self._cycles = None if cycles is None or self._cycles is None else self._cycles + cycles
        if self.have_begun:
            return tid
        counts: Counter[str] = Counter()
        for node, n in window.counts.get(known, {}).items():
            if node.frames and not any(is_worker_loop(frame.file, frame.function) for frame in node.frames):
                counts[node.boundary] += n
        if self._fetching is None and counts["data"]:
            self._fetching, self._fetching_since_s = Counter(), window.begin_s
        if self._fetching is not None:
            self._fetching += counts
        return None


def _trains(node: StackNode, is_known: bool) -> bool:
    if node.boundary not in TRAINING_PHASES or node.work == "compile":  # a first step compiles all of its passes
        return False
    # one of autograd's own threads may run the user's code in backward, but is not called by it
    return is_known or any(frame.user for frame in node.before("backward", "optimizer"))


class CurrentWork(NamedTuple):
    """The work of a main thread, its start, and its line of the user's code."""

    words: str  # "importing transformers", "preparing data"
    since_s: float
    place: Place | None  # None while it imports


def work_after(before: CurrentWork | None, window: Window, pid: int) -> CurrentWork | None:
    """The work of a main thread at the end of a window, given that before it.

    Windows of one second that are mostly at these places, and what is known at the end of each::

        train.py:1 import torch      importing torch   since 0
        train.py:1 import torch      importing torch   since 0
        prep.py:40 load              computing         since 2, load() prep.py:40
        prep.py:41 load              computing         since 2, load() prep.py:41
    """
    counts: Counter[tuple[str, Place | None]] = Counter()
    for node, n in window.counts.get(pid, {}).items():
        counts[_doing(node)] += n
    if not counts:
        return before
    words, place = max(counts, key=counts.__getitem__)
    code = place.code if place is not None else None
    goes_on = before is not None and (before.words, before.place and before.place.code) == (words, code)
    return CurrentWork(words, before.since_s if before is not None and goes_on else window.begin_s, place)


def _doing(node: StackNode) -> tuple[str, Place | None]:
    if node.work == "import":
        return f"importing {imported_at(node.frames, node.import_depth) or 'modules'}", None
    only_compiles = node.user_line is None and is_compiler(node.frame.file)  # a process that does nothing else
    if node.work == "compile" or only_compiles:
        words = COMPILING
    elif node.activity == "child":
        words = AWAITS_PROCESSES
    else:
        words = _PHASES.get(node.boundary) or _WORDS.get(node.activity) or "computing"
    return words, place_of(node.frames)


#: The kinds of work.
_WORKS: tuple[Work, ...] = (*get_args(WorkBeside), "none")
#: The seconds of each.
_Seconds = row_of(*(f"{work.replace(' ', '_')}_s" for work in _WORKS))


class Spent:
    """A training thread's time by work that markers do not show: before its loop, in it, and since the latest step.
    Time without samples is divided like the window of samples that follows it.
    """

    def __init__(self) -> None:
        self._series = Series(_Seconds)
        self._stepped_s = -math.inf  # the end of the windows of steps that have ended
        self.compiling_since_s: float | None = None  # None: its latest samples are mostly of something else
        self._begun_s = math.inf  # when the loop began
        self.saves = 0  # samples since the loop's beginning in which a checkpoint is saved
        self.end_s = -math.inf  # of the latest window

    def add_window(self, window: Window, tid: int) -> None:
        """Fold a window of samples, by its training thread."""
        counts: Counter[Work] = Counter()
        for node, n in window.counts.get(tid, {}).items():
            counts[node.work] += n
        self._add(window.t, window.t - window.begin_s, counts)

    def add_awaited(self, record: Stacks) -> None:
        """Fold a window of a process that it started, such as ``pip``, which is sampled in its place until it ends."""
        if math.isinf(self._begun_s):
            self._add(record.t, record.window_s, {"program": 1})

    def _add(self, t: float, window_s: float, counts: Mapping[Work, int]) -> None:
        begin_s = t - window_s if math.isinf(self.end_s) else self.end_s
        total = sum(counts.values())
        if not total or t <= begin_s:
            return
        self.end_s = t
        if 2 * counts.get("compile", 0) <= total:
            self.compiling_since_s = None
        elif self.compiling_since_s is None:
            self.compiling_since_s = begin_s
        self._series.append(_Seconds(begin_s, t, *((t - begin_s) * counts.get(work, 0) / total for work in _WORKS)))
        if self._begun_s < math.inf:
            self.saves += counts.get("checkpoint", 0)

    def begin(self, t: float) -> None:
        """Note when the loop began, or when a process that this one started began to train."""
        if math.isinf(self._begun_s):
            self._begun_s = t
            self._series.keep_apart(t)

    def end_steps(self, record: Steps) -> None:
        """Note the end of steps; the end of a loop's last step may become known only at the end of the process."""
        if record.count and record.last_step_s is None:
            self._stepped_s = self.end_s

    @property
    def in_loop(self) -> dict[Work, float]:
        """Seconds by work, from the beginning of the loop to the end of the latest step."""
        return self._over(self._begun_s, self._stepped_s)

    @property
    def since_step(self) -> dict[Work, float]:
        """Seconds by work since the latest step."""
        return self._over(max(self._begun_s, self._stepped_s))

    def before(self, started_s: float) -> dict[Work, float]:
        """Seconds by work from the start of the process to its loop; until that begins, all."""
        seconds, first = self._over(-math.inf, self._begun_s), next(iter(self._series.rows()), None)
        if first is not None and started_s < first.begin_s:
            part = (first.begin_s - started_s) / (first.end_s - first.begin_s)
            for work, took_s in self._over(-math.inf, first.end_s).items():
                seconds[work] += part * took_s
        return seconds

    def _over(self, begin_s: float, end_s: float = math.inf) -> dict[Work, float]:
        row = self._series.part(begin_s, end_s)
        return dict(zip(_WORKS, row[2:], strict=True)) if row is not None else dict.fromkeys(_WORKS, 0.0)
