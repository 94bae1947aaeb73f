"""The records of real DataLoaders against what the program measured itself."""

from pathlib import Path

import pytest

from tests.agent.loading.measured import measured

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


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
