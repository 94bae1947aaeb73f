"""Data that is read from a disk anew in every epoch, as the page cache does not keep it."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from tuimon.diagnosis.threshold import Threshold
from tuimon.session.disk_reads import EpochReads
from tuimon.session.rows import LoaderRow
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
