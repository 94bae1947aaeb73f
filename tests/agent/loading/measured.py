"""A program with DataLoaders that measures them itself, and what its ring holds."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from tests.agent.programs import environment
from tests.waiting import until
from tests.warm_torch import WarmProgram
from tuimon.agent.ring.reader import RingReader
from tuimon.records import Loader
from tuimon.sources.markers.follower import RingFollower

#: What runs in the workers is timed where it runs; each process writes what it has done so far.
PARTS = """
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

torch.set_num_threads(1)
FOLDER = os.path.dirname(os.path.abspath(__file__))
done = {"batches": 0, "items_ms": 0.0, "collate_ms": 0.0}


def busy(seconds, what):
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        pass
    done[what] += 1000 * (time.perf_counter() - begin)


class ImageSet(Dataset):
    def __init__(self, length, seconds=0.004):
        self.length, self.seconds = length, seconds

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        busy(self.seconds, "items_ms")
        return torch.full((8,), float(index))


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for index in range(info.id if info else 0, 64, info.num_workers if info else 1):
            busy(0.004, "items_ms")
            yield torch.full((8,), float(index))


def write_truth():
    # one call, as quick as can be: what it takes is in none of the times
    handle = os.open(os.path.join(FOLDER, f"truth-{os.getpid()}.json"), os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(handle, json.dumps(done).ljust(200).encode())
    os.close(handle)


def slow_collate(items):
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.008:
        pass
    batch = torch.stack(items)
    done["batches"] += 1
    done["collate_ms"] += 1000 * (time.perf_counter() - begin)
    write_truth()
    return batch


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)


def train(loader):
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()


def evaluate(loader):
    for batch in loader:
        model(batch)


def end():
    # In a fast loop the latest markers are written with the first that comes a little later.
    time.sleep(0.1)
    model(torch.ones(8)).sum().backward()
    print("done", flush=True)
    sys.stdin.readline()

"""


@contextlib.contextmanager
def ring_after(folder: Path, main: str, parts: str = "") -> Iterator[RingReader]:
    """The ring of a program that has run ``main`` and still lives."""
    script = folder / "train.py"
    script.write_text(
        f"{PARTS}\n{parts}\nif __name__ == '__main__':\n" + "".join(f"    {row}\n" for row in main.splitlines())
    )
    rings = folder / "rings"
    stays_read, stays = os.pipe()
    out, out_write = os.pipe()
    program = WarmProgram([str(script)], environment(rings), None, [stays_read, out_write, 2])
    for handle in (stays_read, out_write):
        os.close(handle)
    try:
        with open(out) as shown:
            assert shown.readline() == "done\n"
        reader = RingReader(str(until(lambda: list(rings.glob(f"{program.pid}-*.ring")))[0]))
        yield reader
        reader.close()
    finally:
        program.kill()
        os.close(stays)


def loaders(reader: RingReader, window_s: float = 60.0) -> list[Loader]:
    """All that a source makes of a ring, in windows of that length, however long ago its workers began."""
    now_ns = time.monotonic_ns()
    follower = RingFollower(reader, window_s, now_ns)
    with mock.patch("tuimon.sources.markers.loaders.LATE_NS", sys.maxsize):
        records = [*follower.windows(now_ns), *follower.last(now_ns)]
    return [record for record in records if isinstance(record, Loader)]


def measured(folder: Path, main: str, parts: str = "") -> tuple[list[Loader], dict[int, dict[str, float]]]:
    """The records of a program that has run ``main``, and what each of its processes measured itself."""
    with ring_after(folder, main, parts) as reader:
        return loaders(reader), truths(folder)


def truths(folder: Path) -> dict[int, dict[str, float]]:
    """What each process measured itself, by pid."""
    return {int(path.stem.partition("-")[2]): json.loads(path.read_text()) for path in folder.glob("truth-*.json")}
