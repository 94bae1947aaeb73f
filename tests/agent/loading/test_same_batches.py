"""Batches, errors and messages are the same with the workers measured, and the times are right."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.agent.loading.measured import measured
from tests.agent.programs import AGENT, environment
from tests.warm_torch import warm_python

pytestmark = pytest.mark.torch

pytest.importorskip("torch")

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


@pytest.mark.trust
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
    assert "_tuimon_agent" not in ours.stderr and f"{AGENT}/" not in ours.stderr
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
print(worker is not None and bool(worker.in_process), file=sys.stderr)
"""


@pytest.mark.trust
@pytest.mark.skipif(sys.version_info < (3, 11), reason="not timed before 3.11")
def test_a_fetcher_in_use_is_copied_as_without_us(tmp_path):
    script = tmp_path / "copied.py"
    script.write_text(COPIED)
    plain = warm_python(str(script), env=environment(None))
    ours = warm_python(str(script), env=environment(tmp_path / "rings"))
    assert (plain.returncode, plain.stderr) == (0, "False\n"), plain.stderr
    assert ours.stdout == plain.stdout
    assert ours.stderr == "True\n"


def line_at(place):
    return Path(place.file).read_text().splitlines()[place.line - 1]


def check_workers(records, truth):
    """Every process that made batches is there, with its batches, and its time where it was spent."""
    listed = {}
    for worker in (worker for record in records for worker in record.workers):
        batches, items, collate = listed.get(worker.pid, (0, 0.0, 0.0))
        listed[worker.pid] = (batches + worker.batches, items + worker.items_ms, collate + worker.collate_ms)
    assert listed.keys() == truth.keys()
    for pid, (batches, items_ms, collate_ms) in listed.items():
        own = truth[pid]
        assert batches == own["batches"]
        assert items_ms >= 0.99 * own["items_ms"] and collate_ms >= 0.99 * own["collate_ms"]
        assert items_ms / (items_ms + collate_ms) == pytest.approx(
            own["items_ms"] / (own["items_ms"] + own["collate_ms"]), abs=0.08
        )


def test_map_style_with_workers(tmp_path):
    main = """
loader = DataLoader(ImageSet(96), 4, collate_fn=slow_collate, num_workers=2, multiprocessing_context="fork")
train(loader)
end()"""
    records, truth = measured(tmp_path, main)
    facts = next(record.facts for record in records if record.facts)
    assert (facts.dataset, facts.kind, facts.workers, facts.prefetch) == ("ImageSet", "map", 2, 2)
    assert (facts.batch_size, facts.context, facts.persistent, facts.pin_memory) == (4, "fork", False, False)
    assert (facts.item.function, facts.collate.function) == ("__getitem__", "slow_collate")
    assert "def __getitem__" in line_at(facts.item) and "def slow_collate" in line_at(facts.collate)
    assert sum(record.fetches for record in records) == 24
    assert sum(record.ready_fetches for record in records) >= 23  # an iterator's first fetch may go without
    assert records[-1].role == "train"
    assert {worker.number for record in records for worker in record.workers} == {0, 1}
    assert len(truth) == 2
    check_workers(records, truth)


def test_iterable_with_persistent_workers_over_epochs(tmp_path):
    main = """
loader = DataLoader(Stream(), 8, collate_fn=slow_collate, num_workers=2, persistent_workers=True, prefetch_factor=3)
for _ in range(3):
    train(loader)
end()"""
    records, truth = measured(tmp_path, main)
    facts = next(record.facts for record in records if record.facts)
    assert (facts.dataset, facts.kind, facts.prefetch, facts.persistent) == ("Stream", "iterable", 3, True)
    assert "def __iter__" in line_at(facts.item)
    assert {record.number for record in records} == {0}
    assert sum(record.fetches for record in records) == 3 * 8
    assert len(truth) == 2
    for own in truth.values():
        assert own["batches"] == 12
    check_workers(records, truth)


@pytest.mark.parametrize("dataset", ["ImageSet(64)", "Stream()"])
def test_without_workers_the_trainer_itself(tmp_path, dataset):
    main = f"""
train(DataLoader({dataset}, 8, collate_fn=slow_collate))
end()"""
    records, truth = measured(tmp_path, main)
    assert list(truth) == [records[0].pid]
    assert sum(record.fetches for record in records) == 8
    assert all(record.ready_fetches == 0 and record.ready_last is None for record in records)
    check_workers(records, truth)
    waited_ms = sum(record.wait_ns for record in records) / 1e6
    assert waited_ms >= 0.99 * (truth[records[0].pid]["items_ms"] + truth[records[0].pid]["collate_ms"])


def test_train_and_eval_over_epochs_are_two_loaders(tmp_path):
    """Alike but for what they are for; each epoch has new iterators and new workers."""
    main = """
kind = dict(batch_size=4, collate_fn=slow_collate, num_workers=1)
training, validation = DataLoader(ImageSet(16), **kind), DataLoader(ImageSet(16), **kind)
for _ in range(3):
    train(training)
    evaluate(validation)
end()"""
    records, _ = measured(tmp_path, main)
    last = {record.number: record for record in records}
    assert {number: record.role for number, record in last.items()} == {0: "train", 1: "eval"}
    for number in (0, 1):
        assert sum(record.fetches for record in records if record.number == number) == 12


def test_a_loader_made_anew_each_epoch_is_one(tmp_path):
    main = """
for _ in range(4):
    train(DataLoader(ImageSet(8, 0.0001), 4))
loader = DataLoader(torch.utils.data.Subset(ImageSet(8, 0.0001), range(4)), batch_size=None)
train(loader)
end()"""
    records, _ = measured(tmp_path, main)
    facts = {record.number: record.facts for record in records if record.facts}
    assert {number: (f.dataset, f.batch_size) for number, f in facts.items()} == {
        0: ("ImageSet", 4),
        1: ("Subset of ImageSet", None),
    }


def test_ready_batches_are_counted(tmp_path):
    """Workers that are far ahead: all they may prepare lies ready when the trainer asks."""
    main = """
loader = DataLoader(ImageSet(64, 0.0), 4, num_workers=2, persistent_workers=True)
iterator = iter(loader)
next(iterator)
deadline = time.monotonic() + 60

def ready():
    early = sum(len(task) == 2 for task in iterator._task_info.values())  # received before its turn
    return iterator._data_queue.qsize() + early

while ready() < 4 and time.monotonic() < deadline:
    pass
next(iterator)
end()"""
    records, _ = measured(tmp_path, main)
    assert records[-1].ready_last == 4


def test_a_loader_inside_a_data_set_is_not_mixed_up(tmp_path):
    main = """
class Nested(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        begin, before_ms = time.perf_counter(), done["items_ms"]
        batch = next(iter(DataLoader(ImageSet(4), 2)))
        done["items_ms"] = before_ms + 1000 * (time.perf_counter() - begin)  # a loader begins in it, too
        return batch


train(DataLoader(Nested(), 2, collate_fn=lambda items: slow_collate([x[0] for x in items]), num_workers=1))
end()"""
    records, truth = measured(tmp_path, main)
    assert {record.facts.dataset for record in records if record.facts} == {"Nested"}
    check_workers(records, truth)
