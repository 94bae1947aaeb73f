"""The beginnings and ends of epochs whose workers are started anew each time."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.loading.workers import Workers
from tuimon.diagnosis.evidence.samples import StackSample, ThreadSamples
from tuimon.diagnosis.threshold import Threshold
from tuimon.session.rows import LoaderRow

START_EPOCHS = Threshold(
    2, "epochs begun, from which their starts count", "the first epoch starts its workers in any case"
)
#: The DataLoader's functions that start an epoch, with its workers, and end these.
_STARTS = ("_get_iterator", "_shutdown_workers")


class EpochStarts(NamedTuple):
    """The time that starting the workers anew for each epoch, and ending them, takes."""

    share: float  # of the wait for data
    start_s: float | None = None  # of one epoch; None without markers
    end_s: float | None = None

    @property
    def each_s(self) -> float | None:
        """Both, of one epoch."""
        return self.start_s + (self.end_s or 0.0) if self.start_s is not None else None


def epoch_starts(loader: LoaderRow | None, workers: Workers, data: ThreadSamples) -> EpochStarts | None:
    """The starts, by markers, or without them by the samples of the data phase; None where workers stay, or are few.

    ``loader``: the one for training, where markers show it.
    """
    if loader is None:
        share = data.share_where(_is_start) if workers.renewed else None
        return EpochStarts(share) if share else None
    if loader.facts.persistent or not loader.facts.workers or loader.starts < START_EPOCHS or not loader.start_share:
        return None
    return EpochStarts(min(1.0, loader.start_share), loader.start_s or 0.0, loader.end_s)


def without_starts(data: ThreadSamples) -> ThreadSamples:
    """The samples of the data phase that neither start an epoch nor end its workers."""
    return ThreadSamples(tuple(sample for sample in data.stacks if not _is_start(sample)))


def _is_start(sample: StackSample) -> bool:
    return any(map(sample.calls, _STARTS))
