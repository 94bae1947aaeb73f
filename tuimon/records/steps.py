"""Records about the steps of a training and about its DataLoaders."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from tuimon.records.base import Amount, Bucket, Count, Moment, Pid, Place, Positive, Record, Window


class PhaseTime(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Time spent in one exclusive phase during a window: ``[name, total_ns]``."""

    name: str
    total_ns: Count


#: The path that sums up all ranges beyond the number of paths that are kept apart.
MORE_RANGES = "(more ranges)"


class RangeTime(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All uses of a user range (``tuimon.phase``, NVTX) in a window: ``[path, count, total_ns, phase]``.

    ``path``: the names of the enclosing ranges, outermost first, and its own, joined by "/". ``total_ns`` includes
    nested ranges. ``phase``: the exclusive phase in which most of that time lies.
    """

    path: str
    count: Positive
    total_ns: Count
    phase: str


class RangePlace(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The place at which ranges of a path are opened and closed: ``[path, file, function, first, last]``.

    A stack with a frame of that function between the lines ``first`` and ``last`` was sampled inside such a range.
    """

    path: str
    file: str
    function: str
    first: Count
    last: Count


class SlowStep(msgspec.Struct, frozen=True, gc=False):
    """The slowest step of a window, with its own phases."""

    index: Count
    total_ns: Count
    phases: list[PhaseTime]


class RankStep(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One step of a rank, to be compared with the same step of the other ranks; times in whole microseconds.

    ``[index, before_us, data_us, forward_us, backward_us, optimizer_us, other_us, between_us]``: its number, how long
    before ``t`` it ended, and its phases.
    """

    index: Count
    before_us: Count
    data_us: Count
    forward_us: Count
    backward_us: Count
    optimizer_us: Count
    other_us: Count
    between_us: Count


_BUCKET_GROWTH = math.log(1.01)


def length_bucket(duration_ns: int) -> int:
    """Histogram bucket of a step's length: logarithmic and 1 % wide, so that a quantile is right within 0.5 %."""
    return round(math.log(max(1, duration_ns)) / _BUCKET_GROWTH)


def bucket_length_ns(bucket: int) -> float:
    """The middle of a bucket, in ns."""
    return math.exp(bucket * _BUCKET_GROWTH)


class Steps(Record, frozen=True, kw_only=True, tag="steps"):
    """The training steps of one process that ended in a window: sums, quantiles, and the slowest step on its own.

    The phases add up to ``total_ns``, except ``eval``, which belongs to no step.
    """

    window_s: Window
    count: Count  # number of steps
    first_index: Count  # number of the first of these steps; the first step of all has 0
    total_ns: Count  # length of all these steps, without those in ``slowed``
    # How many of these steps had all their boundaries timed; None: all. A fast loop only counts the others: their
    # phases are estimated from the timed ones, and quantiles, histogram and ``slowest`` leave them out.
    timed: Count | None = None
    # Steps whose length says nothing about the training: tuimon's own trace or memory history slowed them, a signal
    # stopped them (SIGSTOP), or they began before the first marker. ``count`` includes them, all times but
    # ``slowed_ns`` leave them out.
    slowed: Count = 0
    slowed_ns: Count = 0
    min_ns: Count | None = None
    median_ns: Count | None = None
    p95_ns: Count | None = None
    histogram: list[tuple[Bucket, Positive]] = msgspec.field(default_factory=list)  # (``length_bucket``, steps)
    phases: list[PhaseTime]
    ranges: list[RangeTime] = msgspec.field(default_factory=list)
    range_places: list[RangePlace] = msgspec.field(default_factory=list)  # each place in one record only
    slowest: SlowStep | None = None
    rank_steps: list[RankStep] = msgspec.field(default_factory=list)  # with several ranks: a few, the same on each
    eval_count: Count = 0  # evaluation iterations
    backwards: Count = 0  # backward passes
    updates: Count = 0  # optimizer steps; those that follow each other directly count as one
    open_phase: str | None = None  # the phase that the training is in at ``t``
    open_for_s: Amount | None = None  # how long it has been in that phase, or in an unknown one
    # time for which the program was outside its training loop (a notebook between two cells), or stopped by a signal
    outside_s: Amount | None = None
    first_backward_s: Moment | None = None  # when the first backward of all began; only in the record that covers it
    first_step_s: Moment | None = None  # when the first step of all began; only in the record that covers it
    last_step_s: Moment | None = None  # when the last of these steps ended, if that was before the window
    dropped: Count = 0  # markers that were overwritten before tuimon read them
    # garbage collector's pauses of at least 0.5 ms on any thread, summed; one after the last of these steps is in the
    # next record
    gc_ns: Count | None = None
    gc_count: Count = 0  # number of these pauses
    gc_longest_ns: Count = 0
    samples: Count | None = None  # training samples in all these steps, if the program passes them to ``tuimon.step``
    tokens: Count | None = None  # tokens, likewise
    tid: Count | None = None  # the thread that trains, if it is not the main thread

    @property
    def usual(self) -> int:
        """The number of steps that the times cover: all but those in ``slowed``."""
        return max(0, self.count - self.slowed)


class LoaderFacts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The arguments that a DataLoader was created with."""

    dataset: str  # name of its dataset's class
    kind: Literal["map", "iterable"]
    workers: Count  # 0: the training process loads the batches itself
    prefetch: Count | None = None  # batches that each worker loads ahead
    batch_size: Count | None = None  # None: no automatic batching, or a batch sampler without a fixed size
    pin_memory: bool = False  # False as well if torch ignores it, as there is no GPU
    persistent: bool = False  # True if workers stay for the next epoch
    context: str | None = None  # "fork", "spawn", "forkserver"; None if there are no workers
    in_order: bool | None = None  # True if a batch waits for those requested before it; None before torch 2.6
    item: Place | None = None  # the dataset's method that makes items: __getitem__, __getitems__ or __iter__
    collate: Place | None = None  # the collate_fn, which makes a batch of items


class LoaderWorker(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A worker since its last report: ``[pid, number, batches, items_ms, collate_ms, wait_ms, hand_over_ms]``.

    The times add up to the time since that report. ``wait_ms``: waiting for the trainer to request a batch.
    ``hand_over_ms``: waiting only for its last batch to be pickled and written to the pipe, which blocks until the
    trainer reads; if None, it is part of ``wait_ms``. Without workers the only row is the training process itself.
    """

    pid: Pid
    number: Count
    batches: Count | None = None
    items_ms: Amount | None = None
    collate_ms: Amount | None = None
    wait_ms: Amount | None = None
    hand_over_ms: Amount | None = None


class MeasuredBatches(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Sums over the batches that were measured when the training got them; None: unknown for some of them.

    ``[count, bytes, samples, on_cpu, pinned, tokens, padding, tensors,
    storage_bytes]``.
    """

    count: Positive  # batches
    total_bytes: Count
    samples: Count | None = None  # rows of each batch's first tensor
    on_cpu: Count = 0  # batches with all their tensors on the CPU
    pinned: Count | None = None  # batches whose tensors on the CPU were all in pinned memory
    tokens: Count | None = None  # by the shape of the token ids
    padding: Count | None = None  # how many of the tokens a mask leaves out
    tensors: Count | None = None
    storage_bytes: Count | None = None  # of the whole storages that its tensors on the CPU are views of

    def plus(self, other: MeasuredBatches) -> MeasuredBatches:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        sums: list[Any] = [None if None in pair else sum(pair) for pair in pairs]  # Any: some may be unknown
        return MeasuredBatches(*sums)

    @property
    def mean_samples(self) -> float | None:
        return None if self.samples is None else self.samples / self.count


class Loader(Record, frozen=True, kw_only=True, tag="loader"):
    """One DataLoader of a process over a window in which it was used. A *fetch* is the trainer's ``next(iterator)``."""

    number: Count  # distinguishes the loaders of one process
    window_s: Window
    role: Literal["train", "eval"] | None = None  # what its batches have been used for so far
    fetches: Count = 0  # fetches that were timed
    counted: Count = 0  # further fetches, which a fast loop only counts
    wait_ns: Count = 0  # time the trainer spent in the fetches that were timed
    p95_ns: Count | None = None  # 95th percentile of a fetch
    held_ns: Count = 0  # time beyond the usual for which fetches waited for their batch while later batches were ready
    held_ms2: Amount = (
        0.0  # sum of the squares of these times, in ms2; together with ``held_ns`` it gives a typical one
    )
    ready_fetches: Count = 0  # fetches for which the number of ready batches is known
    ready_total: Count = 0  # sum of these numbers
    ready_none: Count = 0  # fetches that found no batch ready
    ready_last: Count | None = None  # batches ready at the latest fetch
    waits_for_s: Amount | None = None  # how long a fetch has been under way at ``t``; None below 0.5 s
    starts: Count = 0  # epochs that began: workers were started or reset, and the first batch came
    start_ns: Count = 0  # time the trainer spent in these starts: in ``iter(loader)`` and in the first fetch
    iter_ns: Count = 0  # the part of ``start_ns`` in ``iter(loader)``, which ``wait_ns`` does not include
    end_ns: Count = 0  # time the trainer waited for workers at the ends of epochs; ``wait_ns`` does not include it
    facts: LoaderFacts | None = None  # in the first record and in some later ones
    workers: list[LoaderWorker] = msgspec.field(default_factory=list)  # of many workers, a few in each record
    batches: MeasuredBatches | None = None  # None: no batch was measured in this window; most windows measure a few
    epochs: Count = 0  # epochs that ended: no batch was left, or the next epoch began
    given: Count | None = None  # batches that the current epoch has given so far, or that the last one gave
    length: Count | None = None  # batches in an epoch; None if unknown
