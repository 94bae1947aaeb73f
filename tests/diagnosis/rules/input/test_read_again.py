"""Data that every epoch reads from the disk anew, and data that does not."""

import pytest

from tests.diagnosis.cpu import STARVED, run, workers
from tests.diagnosis.rules.input.test_waiting import gain_of
from tests.session.records import frames
from tuimon.records import DiskReads, Loader, LoaderFacts, LoaderWorker

GB = 1 << 30


def epochs(*gigabytes, kind="map", mount="/mnt/nfs", file_system="nfs4"):
    """Readings every 10 s, the last at 12 s, and the ends of epochs of 20 s that read so much each."""
    facts = LoaderFacts(dataset="Images", kind=kind, workers=2, batch_size=8)
    rows = [LoaderWorker(pid, pid - 201, 5, 900.0, 50.0, 50.0) for pid in (201, 202)]
    total, records = 0.0, []
    for number, size in enumerate(gigabytes):
        for half in (1, 2):
            t = 12.0 - 10.0 * (2 * (len(gigabytes) - number) - half)
            total += size * GB / 2
            records.append(DiskReads(t=t, pid=100, total_bytes=round(total), mount=mount, kind=file_system))
            given = {"role": "train", "fetches": 10, "wait_ns": 10**9, "facts": facts, "workers": rows}
            records.append(Loader(t=t, pid=100, number=0, window_s=1.0, epochs=half - 1, **given))
    return records


def judged(*records, state="disk"):
    first, *_ = run(STARVED, *records, *workers(2, 0.1, ([0, 1], 10), state=state))
    return first


def test_what_each_epoch_reads_is_told_with_its_mount_and_a_way_to_read_it_once():
    first = judged(*epochs(12, 12, 12.5, 12, 11.8))
    assert first.cause == "disk_wait"
    assert first.headline.endswith("the workers wait for the disk, 12.2 GiB is read anew every epoch")
    assert first.evidence["read_every_epoch"] == "12.2 GiB from /mnt/nfs (nfs4)"
    assert first.action == "copy the data to a local disk, or into memory, before the training"


def test_of_a_local_disk_memory_is_what_helps():
    first = judged(*epochs(12, 12, 12, 12, 12, mount="/", file_system="ext4"))
    assert first.action == "keep the data in memory, in a smaller form if it does not fit"
    unknown = judged(*epochs(12, 12, 12, 12, 12, mount=None, file_system=None))
    assert unknown.evidence["read_every_epoch"] == "12 GiB"


@pytest.mark.parametrize(
    "healthy",
    [
        epochs(12, 0, 0, 0, 0),
        epochs(12, 12),
        epochs(12, 3, 9, 1, 12),
        epochs(0.1, 0.1, 0.1, 0.1, 0.1),
        epochs(12, 12, 12, 12, 12, kind="iterable"),
        [],
    ],
    ids=("cached", "too few", "not alike", "little", "a stream", "nothing"),
)
def test_nothing_is_told_of_data_that_is_not_known_to_be_read_again(healthy):
    first = judged(*healthy)
    assert "anew" not in first.headline and "local disk" not in first.action


def test_workers_that_are_blocked_read_it_once_as_well_as_ahead():
    remote = frames(("data.py", 95, "load", "file.read()", True), first=30)
    first, *_ = run(STARVED, *epochs(12, 12, 12, 12, 12), remote, *workers(2, 0.03, ([0, 30], 40)))
    assert first.cause == "workers_saturated" and first.headline.endswith(", 12 GiB is read anew every epoch")
    assert gain_of("copy the data to a local disk, or into memory, before the training", first) > 1
