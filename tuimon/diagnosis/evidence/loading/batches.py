"""The DataLoader whose batches train, and the work on them in the training process: drawing indices, making batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import dropwhile, pairwise

from tuimon.code_origin import is_others_package
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, ThreadSamples, with_callees
from tuimon.session.loop_tree.stacks import StackSample
from tuimon.session.rows import LoaderRow
from tuimon.session.samples.process_samples import ProcessSamples
from tuimon.session.windows import mean_of_known

#: Activities of a training thread that only waits for its data.
WAITS = ("data", "idle", "io", "lock")
#: The DataLoader's function that draws the indices of a batch.
_DRAWS = "_next_index"


def training_loader(loaders: Sequence[LoaderRow]) -> LoaderRow | None:
    """The DataLoader whose batches train, according to its markers; None without.

    One that the set-up went through, as for statistics of the data, is fetched from no more.
    """
    training = (loader for loader in loaders if loader.latest.role != "eval")
    return max(training, key=lambda loader: loader.fetches_per_s or 0.0, default=None)


def evaluation_loader(loaders: Sequence[LoaderRow]) -> LoaderRow | None:
    """The DataLoader whose batches are evaluated; None without one, and where several are."""
    found = [loader for loader in loaders if loader.latest.role == "eval"]
    return found[0] if len(found) == 1 else None


def own_collate_share(loader: LoaderRow | None, data: ThreadSamples) -> float | None:
    """The part of the wait for data that the training process, without workers, spends in collate.

    ``data``: the training thread's samples in the data phase.
    """
    if loader is not None and not loader.facts.workers and (share := collate_share(loader, ())) is not None:
        return share
    return data.share_where(lambda sample: sample.has("collates"))


def collate_share(loader: LoaderRow | None, spots: Sequence[ProcessSamples]) -> float | None:
    """The part of making batches that collate takes; ``spots``: samples of the processes that make them."""
    rows = loader.worker_rows if loader is not None else ()
    items, collate = mean_of_known([w.items_ms for w in rows]), mean_of_known([w.collate_ms for w in rows])
    if items is not None and collate is not None and items + collate > 0:
        return collate / (items + collate)
    return mean_of_known([s.collate_share() for s in spots])


def is_outside_collate(hot: HotFunction, data: ThreadSamples) -> bool:
    """True if the samples that collate show another function than the one that is named; without any, none does."""
    named = hot.library or hot.place
    collating = [sample for sample in data.stacks if sample.has("collates")]
    return bool(collating) and not any(
        (frame.file, frame.function) == (named.file, named.function)
        for sample in collating
        for frame in [*dropwhile(lambda caller: "collates" not in caller.roles, sample.frames)][1:]
    )


def working_share(data: ThreadSamples) -> float | None:
    """Share of the training thread's samples in the data phase in which it works itself; None with too few.

    Receiving a batch from a worker takes time too, which faster data does not shorten. In the rest it only waits.
    """
    return data.share_where(lambda sample: sample.activity not in WAITS and sample.kinds[-1:] != ["fetch"])


def is_loaders_own(sample: StackSample) -> bool:
    """True if the DataLoader is at its own work, such as indexing or default collate: nobody else's code runs below."""
    kinds = sample.kinds
    if "fetch" not in kinds:
        return False
    return not any(frame.user or is_others_package(frame.file) for frame in sample.frames[kinds.index("fetch") :])


def draws_indices(data: ThreadSamples) -> Callable[[StackSample], bool]:
    """True if a sample of the data phase draws indices: it is in that function, or in what others show it to call.

    A stack that was read while it changed may lack the DataLoader's own frames.
    """
    called = {
        (frame.file, frame.function)
        for sample in data.stacks
        for caller, frame in pairwise(sample.frames)
        if caller.function == _DRAWS
    }
    return lambda sample: any(
        frame.function == _DRAWS or (frame.file, frame.function) in called for frame in sample.frames
    )


def drawing_function(data: ThreadSamples) -> HotFunction | None:
    """The user's function that draws indices in most samples; its share is of all those of the data phase."""
    return with_callees(data.hottest_where(draws_indices(data)), data)


def may_draw(data: ThreadSamples) -> bool:
    """True if the fetch may draw indices most of the time, as far as few samples show.

    If more than half of them do, one in five is seen in 97 of 100 cases (1 - 0.5**5).
    """
    if data.total >= MIN_SAMPLES:
        return False
    return data.total < MIN_SAMPLES / 2 or any(map(draws_indices(data), data.stacks))
