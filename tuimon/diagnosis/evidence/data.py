"""The data of a training: the DataLoader whose batches train, who makes the batches, and whether they are ready."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from itertools import dropwhile, pairwise
from typing import NamedTuple

from msgspec import Struct

from tuimon.code_origin import is_others_package
from tuimon.diagnosis.evidence.steps import SLOW_RATIO
from tuimon.diagnosis.evidence.threads import OWN_WAITS, ProcessEvidence, awaits_thread, works
from tuimon.diagnosis.evidence.workers import (
    Senders,
    Workers,
    collate_share,
    sender_evidence,
    user_place,
    worker_evidence,
)
from tuimon.diagnosis.threshold import MIN_SAMPLES, MOST, Threshold
from tuimon.session.loaders import LoaderRow
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import StackNode, is_environment_step

#: The DataLoader's function that draws the indices of a batch.
_DRAWS = "_next_index"
HAND_OVER_MS = Threshold(
    2.0,
    "ms that a batch from a worker is taken to cost the training thread where there are no workers yet",
    "measured in tests/scenarios where batches lie ready, two tensors each: 2.1 ms (healthy_trainer); 2.2 to 2.4 ms in"
    " other loops",
)


class Pool(NamedTuple):
    """Threads of the training process that make the items for which the training thread waits in a fetch."""

    hot: HotLine | None  # where they work; its share is of the data phase
    cpu_ratio: float  # cores that they use, on average
    cores: float  # that they use while they are waited for


class DataEvidence(Struct, frozen=True, dict=True):
    """The data of a training process."""

    _own: ProcessEvidence

    @cached_property
    def loader(self) -> LoaderRow | None:
        """The DataLoader whose batches train; None without a DataLoader or without markers.

        One that was read only during set-up, as for statistics, has no fetches by now.
        """
        training = (row for row in self._own.view.loaders(self._own.pid) if row.latest.role != "eval")
        return max(training, key=lambda row: row.fetches_per_s or 0.0, default=None)

    @property
    def fetches(self) -> int:
        """Training batches of the run, from all loaders together: some programs make a new loader each epoch."""
        return sum(row.fetches for row in self._own.view.loaders(self._own.pid) if row.latest.role != "eval")

    @cached_property
    def samples(self) -> Samples:
        """The training thread's stack samples in the data phase."""
        return self._own.samples.where(phase="data")

    @cached_property
    def draws(self) -> Callable[[StackNode], bool]:
        """Tells whether the training thread draws indices in a sample."""
        return draws_indices(self.samples)

    @cached_property
    def working_share(self) -> float | None:
        """Share of the data phase's samples in which the training thread works itself; None with too few samples.

        Receiving a batch from a worker is such work, too, which faster data does not shorten. The rest is waiting.
        """
        return self.samples.share(lambda node: node.activity not in OWN_WAITS and node.frame.kind != "fetch")

    # -- who makes it

    @cached_property
    def workers(self) -> Workers:
        """The DataLoader workers, as far as they were measured."""
        return worker_evidence(self._own.view, self._own.pid, self.loader)

    @cached_property
    def senders(self) -> Senders:
        """The processes that may send it data by messages, such as those of environments."""
        return sender_evidence(self._own.view, self._own.pid)

    @cached_property
    def pool(self) -> Pool | None:
        """The threads that make the items; None if the training thread makes most itself, or waits for another process.

        A thread whose CPU time is unknown counts as a whole core.
        """
        waiting = 0.0 if self.workers.number else self.samples.share(awaits_thread) or 0.0
        if waiting < MOST:
            return None
        others = self._own.others
        busy = {tid: working for tid, each in others.items() if (working := each.where(works)).total >= MIN_SAMPLES}
        if not busy:
            return None
        hot = Samples.joined(busy.values()).hottest()
        part = self.samples.total / self._own.samples.total
        known = {row.tid: row.cpu_ratio for row in self._own.threads if row.cpu_ratio is not None}
        cpu_ratio = sum(known.get(tid, part) for tid in busy)
        return Pool(hot._replace(share=waiting * hot.share) if hot is not None else None, cpu_ratio, cpu_ratio / part)

    @cached_property
    def rollout(self) -> Rollout | None:
        """The rollout that makes the data, if an environment or the training's own model does; else None."""
        return rollout_shares(self._own.samples)

    # -- whether it comes in time

    @cached_property
    def epoch_starts(self) -> float | None:
        """The share of the wait for data that goes to starting workers for each epoch, and to ending them.

        By markers, or without them by the samples of the data phase; None where workers stay for whole epochs.
        """
        loader = self.loader
        if loader is None:
            starts = self.samples.share(lambda node: node.calls("_get_iterator") or node.calls("_shutdown_workers"))
            return starts or None if self.workers.renewed else None
        is_started = loader.facts.workers and loader.starts > 1  # the first epoch starts them in any case
        is_started = is_started and (not loader.facts.persistent or self.of_iterator is not None)
        return min(1.0, loader.start_share) if is_started and loader.start_share else None

    @cached_property
    def of_iterator(self) -> int | None:
        """How many batches the loop takes from each iterator, if they are few: no epoch, and no more than lie ready."""
        loader = self.loader
        if loader is None or loader.epoch is None or not loader.epoch.done or loader.epoch.length is None:
            return None
        each = round(loader.fetches / (loader.epoch.done + 1))
        return each if each <= min(loader.ready_most or 1, loader.epoch.length - 1) else None

    @cached_property
    def lie_ready(self) -> bool:
        """True if batches are ready at most fetches."""
        return not self.is_held_back and lie_ready(self.loader, self.workers, self.samples)

    @cached_property
    def is_held_back(self) -> bool:
        """True if fetches mostly wait for the next batch in order, while workers that have made later ones idle."""
        loader, workers = self.loader, self.workers
        if loader is None or loader.facts.in_order is False or not loader.held_ms or workers.number < 2:
            return False
        is_late = (loader.late_ms or 0.0) >= SLOW_RATIO * (workers.batch_ms or 0.0)
        is_idle = workers.busy_ratio is not None and not workers.are_saturated
        return is_late and is_idle and loader.held_ms >= MOST * (loader.wait_ms or 0.0)


def made_at(hot: HotLine | None, data: Samples, loader: LoaderRow | None) -> HotLine | None:
    """The hot line of the data phase; if that only shows the fetch, the data set's function that makes the items.

    A sample that waits for the GIL shows where the training thread releases it, which may be after each item.
    """
    if hot is None or loader is None or loader.facts.workers or not (own := user_place(loader.facts.item)):
        return hot
    collated, draws = collate_share(loader, ()), draws_indices(data)
    at_line = data.where(lambda node: node.place == hot.place)
    if (
        collated is None
        or collated >= MOST
        or at_line.part(lambda node: is_loaders_own(node) and not draws(node)) < MOST
    ):
        return hot
    return HotLine(own, 1.0 - collated, 0)


def is_loaders_own(node: StackNode) -> bool:
    """True if the DataLoader is at its own work, such as indexing or default collate, with no other code below it."""
    below = node.frames[len(node.before("fetch")) :]
    return bool(below) and not any(frame.user or is_others_package(frame.file) for frame in below)


def draws_indices(data: Samples) -> Callable[[StackNode], bool]:
    """Tells whether a stack draws indices: in the DataLoader's own function, or in code that samples show it to call.

    A stack that was read while it changed may lack the DataLoader's own frames.
    """
    called = {
        frame.code for row in data.rows for caller, frame in pairwise(row.node.frames) if caller.function == _DRAWS
    }
    return lambda node: any(frame.function == _DRAWS or frame.code in called for frame in node.frames)


def lie_ready(loader: LoaderRow | None, workers: Workers, data: Samples) -> bool:
    """True if batches are ready at most fetches, which then take only as long as handing a batch over.

    Batches of several workers are ready only if the workers idle. Without markers ``data``, the samples of fetches,
    show it: apart from drawing indices, the training thread mostly works there, unless it has to wait for a core.
    """
    if workers.busy_ratio is None:
        return False
    is_busy = workers.busy_ratio >= MOST
    if loader is None:
        if is_busy and workers.number > 1 and (workers.ran_ratio or 0.0) > 2.0 * (workers.cpu_ratio or math.inf):
            return False  # they wait for a core longer than they have one, and so may a thread at work in a fetch
        draws = draws_indices(data)
        fetching = data.where(lambda node: not draws(node))
        taking = fetching.share(lambda node: _takes(node, is_busy))
        return taking is not None and taking > 1.0 - MOST
    return not is_busy and loader.ready_none_ratio is not None and loader.ready_none_ratio < MOST


def _takes(node: StackNode, is_busy: bool) -> bool:
    """True if the training thread takes a batch over, or tells a worker to make the next.

    It waits for the worker meanwhile, which answers at once unless it keeps the GIL busy.
    """
    takes = node.calls("rebuild_")  # rebuild_storage_fd() and others take a tensor out of shared memory
    return takes and not is_busy if node.activity in OWN_WAITS else takes or node.calls("__next__")


# -- data that the training makes itself: by stepping an environment, or by generating with the model

#: Phases that only the loop leads to: a policy, too, runs the model.
_UPDATE = ("backward", "optimizer")
#: Functions, or the user's source, that bring data from one kind of memory or array to another.
_COPIES = re.compile(
    r"\b(?:from_numpy|as_tensor|obs_as_tensor|to_torch)\b|\.(?:to|cpu|cuda|numpy)\(|torch\.(?:tensor|stack)\("
)


class Rollout(NamedTuple):
    """Shares (0..1) of the training thread's samples in the data phase, by what makes the data."""

    environment: float
    policy: float  # the model, and library code around it, outside the environment
    copy: float  # to and from tensors, in functions that call the environment or the policy

    @property
    def is_by_policy(self) -> bool:
        """True if the model takes longer than the environment: that is the training's own work."""
        return self.policy > self.environment


def rollout_shares(main: Samples) -> Rollout | None:
    """The shares of a rollout in the training thread's data phase; None without a rollout, or with few samples.

    A function that leads to the environment, and not to the update, is part of the rollout with all that it calls; its
    own time is the policy's. So is all time of a function that calls the model, as it draws an action from the output.
    """
    data = main.where(phase="data")
    making = data.where(lambda node: node.makes_data)
    if data.total < MIN_SAMPLES or not making.total:
        return None
    stepping, loop = frozenset(making.through), frozenset(main.where(phase=_UPDATE).through)
    calling = (row.node.before("module") for row in data.rows if row.node.has("module"))
    callers = (next((frame.code for frame in reversed(frames) if frame.user), None) for frames in calling)
    acting = frozenset(filter(None, callers)) - stepping - loop
    own = stepping - main.training_path
    counts: Counter[str] = Counter()
    made = 0
    for row in data.rows:
        kind = _kind(row.node)
        is_own = row.node.frame.code in own and not row.node.makes_data
        kind = kind or ("policy" if is_own or acting & row.node.functions else "")
        counts[kind] += row.count
        if kind in ("environment", "policy") or own & row.node.functions:
            made += row.count
    shares = Rollout(*(counts[kind] / data.total for kind in Rollout._fields))
    return shares if made >= MOST * data.total else None


def rollout_parts(main: Samples) -> tuple[float, float] | None:
    """The shares of a step, 0..1, that the environment and the policy of a rollout take; None without a rollout."""
    rollout = rollout_shares(main)
    if rollout is None:
        return None
    share = main.phases["data"] / main.in_steps.total
    return rollout.environment * share, rollout.policy * share


def _kind(node: StackNode) -> str:
    if node.has("environment") or any(is_environment_step(*pair) for pair in pairwise(node.frames)):
        return "environment"
    if node.has("module") or node.has("generates"):
        return "policy"
    if _COPIES.search(node.frame.source or node.frame.function):
        return "copy"
    # a library's collector at work around its policy, which calls no function of the user's
    called = [frame.user for frame in dropwhile(lambda frame: "collector" not in frame.roles, node.frames)]
    return "policy" if called and not any(called) else ""
