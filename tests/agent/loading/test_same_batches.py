"""Batches, errors and their messages are the same with the workers measured and without."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.agent.programs import AGENT, environment
from tests.warm_torch import warm_python

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.trust]

PROGRAM = """
import hashlib, random, re, sys, time
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data import _utils, dataloader

# torch waits 0.5 s for a worker, not 5, before it looks whether it lives, and for as long until it ends
_utils.MP_STATUS_CHECK_INTERVAL = 0.5
dataloader._MultiProcessingDataLoaderIter._try_get_data.__defaults__ = (0.5,)


class Noise(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.tensor([random.random(), float(np.random.rand()), float(torch.rand(())), index])


class Failing(Noise):
    error = ValueError

    def __getitem__(self, index):
        if index == 5:
            raise self.error("bad item")
        return super().__getitem__(index)


class Interrupted(Failing):
    error = KeyboardInterrupt


class Stuck(Noise):
    def __getitem__(self, index):
        time.sleep(60)


class Shards(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for index in range(info.id if info else 0, 17, info.num_workers if info else 1):
            yield torch.tensor([float(index), float(torch.rand(())), float(info.seed % 1000) if info else 0.0])


class Batched(Noise):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def reseed(worker):
    random.seed(worker + 7)


def bad_collate(items):
    raise RuntimeError("cannot collate %d" % len(items))


def unpicklable(items):
    return lambda: items


def plain(text):
    return re.sub(r"pid\\\\(s\\\\) [\\\\d, ]+", "pid(s) #", text)


def load(loader, epochs=1):
    digest = hashlib.sha256()
    try:
        for _ in range(epochs):
            for batch in loader:
                digest.update(batch.numpy().tobytes())
    except (Exception, KeyboardInterrupt) as error:
        print(type(error).__name__, plain(str(error)))
    print(digest.hexdigest()[:16], float(torch.rand(())), random.random())


def main(context, full):
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    kind = dict(batch_size=4, num_workers=2 if full else 1, multiprocessing_context=context)
    load(DataLoader(Failing(), shuffle=True, **kind))
    if not full:
        return
    load(DataLoader(Noise(), shuffle=True, persistent_workers=True, **kind), epochs=3)
    load(DataLoader(Failing(), **kind))
    load(DataLoader(Noise(), collate_fn=bad_collate, **kind))
    load(DataLoader(Noise(), worker_init_fn=reseed, generator=torch.Generator().manual_seed(5), **kind))
    load(DataLoader(Shards(), drop_last=True, persistent_workers=True, **kind), epochs=2)
    load(DataLoader(Batched(), **kind))
    load(DataLoader(Interrupted(), **kind))
    load(DataLoader(Stuck(), timeout=0.2, num_workers=1))
    load(DataLoader(Noise(), batch_size=None, num_workers=1))
    load(DataLoader(Noise(), 4, collate_fn=unpicklable, timeout=1, num_workers=1))
    for dataset in (Noise(), Shards(), Failing(), Interrupted()):
        load(DataLoader(dataset, 4))
    load(DataLoader(Noise(), 4, collate_fn=bad_collate))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[1] == "fork")
    with open(sys.argv[2], "w") as file:
        file.write(str("_tuimon_agent.loading.worker" in sys.modules))
""".replace("\\\\", "\\")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="our frames stand in tracebacks before 3.11")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_the_same_batches_and_messages(tmp_path, context):
    script = tmp_path / "load.py"
    script.write_text(PROGRAM)
    run = partial(warm_python, str(script), context, cwd=tmp_path)
    with ThreadPoolExecutor() as pool:  # both spend most of their time in torch's own timeouts
        runs = [
            pool.submit(run, "plain", env=environment(None)),
            pool.submit(run, "ours", env=environment(tmp_path / "rings")),
        ]
    plain, ours = (each.result() for each in runs)
    assert plain.returncode == ours.returncode == 0, ours.stderr
    assert [(tmp_path / name).read_text() for name in ("plain", "ours")] == ["False", "True"]
    assert "bad item" in plain.stdout and "Traceback" in plain.stdout
    assert ("cannot collate 4" in plain.stdout) == (context == "fork")
    assert ours.stdout == plain.stdout
    assert "_tuimon" not in ours.stderr and f"{AGENT}/" not in ours.stderr
    assert ("local object" in plain.stderr) == ("local object" in ours.stderr) == (context == "fork")


COPIED = """
import copy, pickle, sys, time
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        time.sleep(0.002)  # so that it stays timed
        return float(index)


def collate(items):
    return sum(items)


batches = iter(DataLoader(Slow(), 2, collate_fn=collate))
first = [next(batches) for _ in range(3)]
fetcher = batches._dataset_fetcher
copied, unpickled = copy.deepcopy(fetcher), pickle.loads(pickle.dumps(fetcher))
print(first, sorted(vars(fetcher)), sorted(vars(copied)), fetcher.collate_fn is collate, copied.collate_fn is collate)
print(copied.fetch([1, 2]), unpickled.fetch([3, 4]), next(batches), "tuimon" in repr(pickle.dumps(fetcher)))
fetcher.collate_fn = max
print(next(batches), hasattr(type(fetcher), "collate_fn"), hasattr(fetcher, "collate_fn"))
del fetcher.collate_fn
print(hasattr(fetcher, "collate_fn"))
worker = sys.modules.get("_tuimon_agent.loading.worker")
print(worker is not None and any(worker._timers.values()), file=sys.stderr)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="not timed before 3.11")
def test_a_fetcher_in_use_is_copied_as_without_us(tmp_path):
    script = tmp_path / "copied.py"
    script.write_text(COPIED)
    plain = warm_python(str(script), env=environment(None))
    ours = warm_python(str(script), env=environment(tmp_path / "rings"))
    assert (plain.returncode, plain.stderr) == (0, "False\n"), plain.stderr
    assert ours.stdout == plain.stdout
    assert ours.stderr == "True\n"
