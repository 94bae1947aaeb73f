"""The DataLoader whose batches train: the training process's own work on them, and what is read anew every epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import dropwhile, pairwise
from statistics import fmean
from typing import NamedTuple

from tuimon.code_origin import is_others_package
from tuimon.diagnosis.threshold import MIN_SAMPLES, Threshold
from tuimon.session.disk_reads import EpochReads
from tuimon.session.rows import HotLine, LoaderRow
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.session.windows import mean_of_known
from tuimon.text import size_text

ALIKE = Threshold(
    0.25,
    "part of their mean by which epochs that read the same data may differ in what they read from the disk",
    "our choice: a reading every 5 s dates the end of an epoch",
)
LEAST_BYTES = Threshold(
    float(1 << 28), "bytes an epoch from which it is reported", "our choice: 256 MiB, less is read in seconds"
)
#: The kinds of file systems that other machines hold, by the beginning of their names.
_REMOTE = ("nfs", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "fuse", "9p", "afs", "glusterfs")
#: Activities of a training thread that only waits for its data.
WAITS: tuple[Activity, ...] = ("data", "idle", "io", "lock")
#: Activities of a slow read: a file, the network, or a sleep, as it may look. There is nothing to compute.
READS: tuple[Activity, ...] = ("io", "sleep")
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


def own_collate_share(loader: LoaderRow | None, data: Samples) -> float | None:
    """The part of the wait for data that the training process, without workers, spends in collate.

    ``data``: the training thread's samples in the data phase.
    """
    if loader is not None and not loader.facts.workers and (share := collate_share(loader, ())) is not None:
        return share
    return data.share(below="collates")


def collate_share(loader: LoaderRow | None, makers: Sequence[Samples]) -> float | None:
    """The part of making batches that collate takes; ``makers``: samples of the processes that make them."""
    rows = loader.worker_rows if loader is not None else ()
    items, collate = mean_of_known([w.items_ms for w in rows]), mean_of_known([w.collate_ms for w in rows])
    if items is not None and collate is not None and items + collate > 0:
        return collate / (items + collate)
    return mean_of_known([samples.part(below="collates") for samples in makers if samples.total])


def is_outside_collate(hot: HotLine, data: Samples) -> bool:
    """True if the samples that collate show another function than the one that is named; without any, none does."""
    named = hot.library or hot.place
    collating = data.where(below="collates").rows
    return bool(collating) and not any(
        frame.code == (named.file, named.function)
        for row in collating
        for frame in [*dropwhile(lambda caller: "collates" not in caller.roles, row.node.frames)][1:]
    )


def working_share(data: Samples) -> float | None:
    """Share of the training thread's samples in the data phase in which it works itself; None with too few.

    Receiving a batch from a worker takes time too, which faster data does not shorten. In the rest it only waits.
    """
    return data.share(lambda node: node.activity not in WAITS and node.frame.kind != "fetch")


def is_loaders_own(node: Node) -> bool:
    """True if the DataLoader is at its own work, such as indexing or default collate: nobody else's code runs below."""
    below = node.frames[len(node.before("fetch")) :]
    return bool(below) and not any(frame.user or is_others_package(frame.file) for frame in below)


def draws_indices(data: Samples) -> Callable[[Node], bool]:
    """True if a sample of the data phase draws indices: it is in that function, or in what others show it to call.

    A stack that was read while it changed may lack the DataLoader's own frames.
    """
    called = {
        frame.code for row in data.rows for caller, frame in pairwise(row.node.frames) if caller.function == _DRAWS
    }
    return lambda node: any(frame.function == _DRAWS or frame.code in called for frame in node.frames)


def drawing_function(data: Samples) -> HotLine | None:
    """The user's function that draws indices in most samples; its share is of all those of the data phase."""
    return data.with_callees(data.hottest(draws_indices(data)))


def may_draw(data: Samples) -> bool:
    """True if the fetch may draw indices most of the time, as far as few samples show.

    If more than half of them do, one in five is seen in 97 of 100 cases (1 - 0.5**5).
    """
    if data.total >= MIN_SAMPLES:
        return False
    return data.total < MIN_SAMPLES / 2 or data.part(draws_indices(data)) > 0


class ReadAgain(NamedTuple):
    """The bytes that each epoch reads from the disk, and where they lie."""

    epoch_bytes: float
    mount: str | None
    kind: str | None

    @property
    def text(self) -> str:
        """``12 GiB from /mnt/data (nfs4)``."""
        return size_text(self.epoch_bytes) + (f" from {self.mount} ({self.kind})" if self.mount is not None else "")

    @property
    def remedy(self) -> str:
        """How to have it read once."""
        if self.kind is not None and self.kind.startswith(_REMOTE):
            return "copy the data to a local disk, or into memory, before the training"
        return "keep the data in memory, in a smaller form if it does not fit"


def read_again(reads: EpochReads | None, loader: LoaderRow | None) -> ReadAgain | None:
    """The data of a data set with indices that every epoch reads anew; None where that is not known."""
    if reads is None or loader is None or loader.facts.kind != "map" or len(reads.bytes_each) < 2:
        return None
    mean = fmean(reads.bytes_each)
    if mean < LEAST_BYTES or any(abs(each - mean) > ALIKE * mean for each in reads.bytes_each):
        return None
    return ReadAgain(mean, reads.mount, reads.kind)
