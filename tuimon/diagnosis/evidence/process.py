"""A training process: its steps, the thread that trains, and the other threads, which make its data or hold the GIL."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from tuimon.records import Place
from tuimon.session.session import ProcessView
from tuimon.session.stacks.activity import FOR_OTHERS, WAITS
from tuimon.session.stacks.samples import NO_SAMPLES, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.session.threads import ThreadRow
from tuimon.threshold import MIN_SAMPLES, MOST, Threshold

FIRST_STEPS = Threshold(
    3, "steps up to which all figures count as those of the start", "our choice: the fewest steps that have a median"
)
SLOW_RATIO = Threshold(
    3.0,
    "multiple of its usual time from which a step, its side work or a batch is an exception: compilation and caches",
    "measured in tests/scenarios: without warm-up the slowest of the first steps takes 1.4 to 2.4 medians (healthy_gan,"
    " healthy_two_trainings), with it 4 to 8 (healthy_lbfgs, healthy_trainer)",
)
#: The files of Python in which threads wait for each other, or for items of other threads in queues.
_QUEUE_FILE = re.compile(r"(?:^|/)(?:threading|queue)\.py$")
_GETS, _PUTS = re.compile(r"\.get(?:_nowait)?\("), re.compile(r"\.put(?:_nowait)?\(")


class Contention(NamedTuple):
    """The evidence that the training thread waits for the GIL; shares are of the time."""

    others_hold: float
    training_holds: float | None
    unexplained: float  # neither by the training thread's CPU time, nor by the run queue, nor by its own waits
    culprit: ThreadRow  # the thread that holds the GIL for longest
    place: Place | None  # the line at which the culprit runs
    feeds: bool  # True if the culprit puts what it makes into a queue

    @property
    def share(self) -> float:
        """The time that the training thread loses while others hold the GIL, at most the unexplained time."""
        return min(self.others_hold, self.unexplained)


class ProcessEvidence(ProcessView, frozen=True, dict=True):
    """A training process: its facts, its threads, and their samples."""

    @property
    def world_size(self) -> int:
        """The number of ranks of its training; 1 if unknown."""
        return self.process.world_size or 1

    # -- its steps over the span

    @property
    def has_stepped(self) -> bool:
        """True if a whole step has ended, as markers or samples show."""
        return self.stats.total > 0 if self.is_marked else bool(self.phases)

    @property
    def collecting(self) -> float | None:
        """Share of the time in garbage collections of 0.5 ms and more; None if it is known for less than half of it."""
        sums = self.totals.sums
        is_known = sums.gc_span_s > 0 and sums.gc_span_s >= MOST * sums.span_s
        return sums.gc_ns / 1e9 / sums.gc_span_s if is_known else None

    def times_run(self, phase: str) -> int:
        """How often a phase runs in a step, at least 1."""
        runs = {"backward": self.stats.backwards, "optimizer": self.stats.updates}.get(phase, 0)
        return max(1, round(runs / max(1, self.stats.total)))

    # -- its threads and samples

    @property
    def cpu_ratio(self) -> float | None:
        """CPU time of all its threads; 1.0 is one core."""
        return self.thread_figures.cpu_ratio if self.thread_figures is not None else None

    @cached_property
    def computing(self) -> tuple[ThreadRow, ...]:
        """The thread that trains, and the threads of autograd."""
        return tuple(row for row in self.threads if row.tid == self.tid or row.role == "autograd")

    @cached_property
    def others(self) -> dict[int, Samples]:
        """The stack samples of the other Python threads, by thread id."""
        return {tid: self.samples_of(tid) for tid in self.sampled_tids() if tid != self.tid}

    def gil_held_in(self, place: Place) -> float | None:
        """Share of time in which the training thread holds the GIL in the function of a place; None if unknown."""
        return self.view.session.gil[self.pid].gil_share_in(self.stats.steady_span().begin_s, self.tid, place)

    @cached_property
    def contention(self) -> Contention | None:
        """The contention for the GIL between the training thread and others; None if there is none, or unknown."""
        training = next((row for row in self.threads if row.tid == self.tid), None)
        if training is None or training.cpu_ratio is None or training.delay_ratio is None:
            return None
        waits = self.samples.share(doing=WAITS)
        if waits is None:
            return None
        holders = [(held, row) for row in self.threads if row is not training and (held := self._gil_share(row))]
        if not holders:
            return None
        culprit = max(holders, key=lambda holder: holder[0])[1]
        own, held = self._samples_of(culprit), sum(ratio for ratio, _ in holders)
        unexplained = 1.0 - training.cpu_ratio - training.delay_ratio - waits
        hot = own.where(lambda node: node.activity not in WAITS).hottest()
        return Contention(
            others_hold=held,
            training_holds=training.gil_ratio,
            unexplained=unexplained,
            culprit=culprit,
            place=hot.place if hot else culprit.place,
            feeds=own.part(lambda node: any(each.user and _PUTS.search(each.text) for each in node.frames)) > 0,
        )

    def _gil_share(self, row: ThreadRow) -> float | None:
        """Share of time in which a thread holds the GIL, by dumps or else its time in Python; None if unknown."""
        samples = self._samples_of(row)
        if row.gil_ratio is not None:
            return row.gil_ratio
        if row.cpu_ratio is None or samples.total < MIN_SAMPLES:
            return None
        return row.cpu_ratio * samples.part(doing="python")

    def _samples_of(self, row: ThreadRow) -> Samples:
        return self.others.get(row.tid, NO_SAMPLES) if row.count == 1 else NO_SAMPLES


def works(node: StackNode) -> bool:
    return node.activity not in FOR_OTHERS


def awaits_queue(main: Samples) -> Callable[[StackNode], bool]:
    """A test of stacks: does the training thread wait at a queue in the data phase, or there for the GIL?

    Calls of a queue take no time themselves: a thread there that waits for no lock waits for the GIL.
    """
    has_queue, path = main.where(phase="data").part(_passes_queue) > 0, main.training_path

    def waits(node: StackNode) -> bool:
        if node.activity in ("lock", "thread") or _passes_queue(node):
            return True
        leaf = node.frame  # in no call: at the head of the training loop, or taking from a queue in it
        takes = leaf.text.startswith("for ") or _GETS.search(leaf.text) is not None
        return has_queue and takes and leaf.code in path

    return waits


def _passes_queue(node: StackNode) -> bool:
    """True if a stack takes from a queue, or notifies the thread that fills it."""
    return any(_QUEUE_FILE.search(frame.file) for frame in node.frames)
