"""Loader records from literal markers and slots; their fold; their size in a log."""

import json
import os
import zlib

import pytest

from tests.session.records import process, session_of
from tuimon.agent.ring import layout
from tuimon.agent.ring.files import start_ticks
from tuimon.agent.ring.loading_slots import ITEMS, WAITING, Loading
from tuimon.proc.target_files import NotebookCell, TargetFiles
from tuimon.records import Loader, LoaderFacts, LoaderWorker, MeasuredBatches, Place
from tuimon.sources.loop.machine import LoopMachine
from tuimon.sources.markers.loaders import WORKERS_LISTED, LoaderTracker, parsed_facts
from tuimon.sources.source_facts import ProcessCode

MS = 1_000_000
SECOND = 1_000_000_000
FACTS = {"n": 0, "dataset": "ImageSet", "kind": "map", "workers": 2, "prefetch": 2, "batch": 32, "pin": False,
         "persistent": False, "context": "fork"}  # fmt: skip


class Reader:
    """A ring that holds literal names and slots."""

    pid = 42

    def __init__(self, *facts):
        self.names = [json.dumps(each) for each in facts]
        self.slots = []

    def name(self, number):
        return self.names[number - 1] if number <= len(self.names) else "?"

    def loading(self):
        return iter(self.slots)


class LoaderScript:
    """A tracker fed by words: ``i1`` an iterator of loader 1, ``f1`` a fetch, ``x1`` the end, ``b`` a backward."""

    def __init__(self, *facts):
        self.reader = Reader(*facts)
        self.tracker = LoaderTracker(self.reader, ProcessCode())
        self.machine = LoopMachine()
        self.now_ns = 0
        self.iterator = 1

    def feed(self, words, wait_ns=5 * MS, ready=0):
        for word in words.split():
            if word == "b":
                self.put(layout.BACKWARD_BEGIN)
                continue
            self.iterator += word[0] == "i"
            value = int(word[1:]) << layout.LOADER_SHIFT | self.iterator
            if word[0] == "i":
                self.put(layout.ITER_BEGIN)
                self.put(layout.ITER_END, value)
                continue
            self.put(layout.FETCH_BEGIN, value, ready)
            self.now_ns += wait_ns
            self.put(layout.FETCH_END, value, word[0] == "x")
        return self

    def put(self, kind, value=0, flag=0):
        if kind in layout.LOADER_KINDS:
            self.tracker.add_marker(kind, int(flag), value)
        else:
            stretch = self.machine.feed(self.now_ns, kind, int(flag), value)
            self.tracker.add_stretch(stretch, self.machine.steps)
        self.now_ns += MS

    def records(self):
        return list(self.tracker.records(SECOND, 1.0, self.now_ns, self.machine.open_fetches()))


def test_fetches_and_what_they_cost():
    script = LoaderScript(FACTS).feed("f1 b f1 b f1 b", ready=3).feed("f1 b", wait_ns=40 * MS, ready=1).feed("x1")
    (record,) = script.records()
    assert (record.pid, record.number, record.fetches, record.wait_ns) == (42, 0, 4, 59 * MS)  # 1 ms for each begin
    assert record.p95_ns == 41 * MS
    assert (record.ready_fetches, record.ready_total, record.ready_none, record.ready_last) == (4, 6, 1, 0)
    assert record.facts == LoaderFacts(
        dataset="ImageSet", kind="map", workers=2, prefetch=2, batch_size=32, context="fork"
    )
    assert script.records() == []  # nothing happened since
    assert script.feed("f1 b").records()[0].facts is None  # they are told once


def test_a_fetch_that_waits_while_later_batches_come_is_held_back():
    """With four ready before it waits 40 ms, and six after it, what it waited for was not any batch, but the next."""
    script = LoaderScript(FACTS).feed("f1 b f1 b f1 b f1 b", ready=5).feed("f1 b", wait_ns=40 * MS, ready=5)
    (record,) = script.feed("f1 b f1 b", ready=7).records()
    assert (record.held_ns, record.held_ms2) == (35 * MS, 35**2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("f1 b f1 b x1", ["train"]),
        ("f1 f1 f1 x1", ["train"]),  # nothing trains: its batches make the steps
        ("f1", [None]),
        ("f1 b f1 b x1 f2 x2 f1 b f1 b x1 f2 x2", ["train", "eval"]),  # one batch of validation an epoch
        ("f1 f2 b f1 f2 b", ["train", "train"]),  # zipped
        ("f1 b b f1 b b", ["train"]),  # two losses a batch
        ("f2 f2 f2 x2 f1 b f1 b", ["train", "eval"]),
        ("f1 f1 f1 f1 b b b b f1 f1 x1 b b f1 f1 f1 f1 b", ["train"]),  # a step accumulates over four
        ("f1 " * 20, ["train"]),  # for all that is known so far
        ("f2 f2 f2 f1 b f1 b", ["train", "eval"]),  # left before its end
    ],
)
def test_what_a_loader_is_for(words, expected):
    records = LoaderScript(FACTS, {**FACTS, "n": 1}).feed(words).records()
    assert {record.number: record.role for record in records} == dict(enumerate(expected))


def test_markers_of_no_loader_and_names_that_are_no_facts():
    assert LoaderScript(FACTS).feed("f0 b f9 b").records() == []
    assert LoaderScript({"dataset": "?"}).feed("f1 b").records() == []


def slot(batches, items, collate, wait, pid=None, worker=0, state=WAITING, since_ns=0, ticks=None):
    """What a worker has written of its batches, and the ms that it has spent; by default this process is it."""
    pid = pid or os.getpid()
    ticks = start_ticks(pid) if ticks is None else ticks
    return Loading(ticks, pid, 0, worker, 2, state, 0, since_ns, batches, items * MS, collate * MS, wait * MS, 0)


def test_a_worker_is_told_by_what_it_did_since():
    script = LoaderScript(FACTS)
    script.put(layout.WORKER, os.getpid(), 1)
    script.feed("f1 b")
    script.reader.slots = [slot(3, 60, 9, 30, since_ns=script.now_ns)]
    (record,) = script.records()
    assert record.workers == [LoaderWorker(os.getpid(), 0, 3, 60.0, 9.0, 30.0, 0.0)]
    script.feed("f1 b")
    script.reader.slots = [slot(4, 80, 12, 40, state=ITEMS, since_ns=script.now_ns)]
    script.now_ns += 500 * MS
    (record,) = script.records()
    assert record.workers == [LoaderWorker(os.getpid(), 0, 1, 520.0, 3.0, 10.0, 0.0)]  # with the long item under way


def test_an_epochs_beginning_is_its_iter_and_its_first_fetch():
    script = LoaderScript(FACTS, {**FACTS, "n": 1})
    script.put(layout.ITER_BEGIN)
    script.now_ns += 49 * MS
    script.put(layout.ITER_END, 1 << layout.LOADER_SHIFT | 1)
    script.feed("f2 b f1 b f1 b", wait_ns=8 * MS)
    one, two = script.records()
    assert (one.number, one.starts, one.start_ns, one.iter_ns) == (0, 1, 59 * MS, 50 * MS)  # and 1 ms for a begin
    assert (two.number, two.starts, two.start_ns) == (1, 0, 0)
    (record,) = script.feed("f1 b").records()
    assert record.starts == 0


def test_an_epochs_end_is_the_fetch_without_a_batch_or_the_deletion_of_its_iterator():
    script = LoaderScript(FACTS)
    script.feed("f1 b").put(layout.FETCH_BEGIN, 1 << layout.LOADER_SHIFT | 1)
    script.now_ns += 20 * MS
    script.put(layout.FETCH_END, 1 << layout.LOADER_SHIFT | 1, layout.EXHAUSTED)
    script.put(layout.ITER_BEGIN, 1 << layout.LOADER_SHIFT | 2)
    script.now_ns += 30 * MS
    script.put(layout.ITER_END)
    (record,) = script.records()
    assert (record.fetches, record.end_ns, record.starts) == (1, 52 * MS, 0)  # 1 ms for each put
    (record,) = script.feed("f1 b").records()
    assert record.end_ns == 0


def test_a_worker_whose_marker_is_not_there_is_of_the_loader_that_its_slot_fits():
    script = LoaderScript({**FACTS, "dataset": "Other", "n": 1}, FACTS).feed("f1 b f2 b")
    own = slot(3, 60, 9, 30, worker=1)._replace(dataset=zlib.crc32(b"ImageSet"))
    script.reader.slots = [own, own._replace(pid=1 << 23)]  # the other one is gone
    assert [[worker.pid for worker in record.workers] for record in script.records()] == [[], [os.getpid()]]


def test_a_worker_that_has_ended_is_told_once_more():
    script = LoaderScript(FACTS)
    script.put(layout.WORKER, os.getpid(), 1)
    script.feed("f1 b")
    script.reader.slots = [slot(3, 60, 9, 30, ticks=1)]
    script.now_ns += SECOND
    (record,) = script.records()
    assert record.workers == [LoaderWorker(os.getpid(), 0, 3, 60.0, 9.0, 30.0, 0.0)]
    (record,) = script.feed("f1 b").records()
    assert record.workers == []


def test_many_workers_take_turns(monkeypatch):
    """A record stays small, whatever the number of workers."""
    monkeypatch.setattr("tuimon.sources.markers.loaders.procfs.start_ticks", lambda pid: 5)
    script = LoaderScript({**FACTS, "workers": 64})
    for pid in range(1000, 1064):
        script.put(layout.WORKER, pid, 1)
    script.reader.slots = [slot(9, 60, 9, 30, 1000 + number, number, ticks=5) for number in range(64)]
    seen = []
    for _ in range(64 // WORKERS_LISTED):
        (record,) = script.feed("f1 b").records()
        assert len(record.workers) == WORKERS_LISTED
        seen += [worker.number for worker in record.workers]
    assert sorted(seen) == list(range(64))


def test_batches_that_were_measured_add_up():
    script = LoaderScript(FACTS).feed("f1 b f1 b")
    script.put(layout.BATCH, layout.pack_batch(1000, 32, True, True), 1)
    script.put(layout.BATCH, layout.pack_batch(500, 16, True, False), 1)
    script.put(layout.BATCH, layout.pack_batch(7, 1, True, True), 9)  # of no loader
    script.put(layout.BATCH, (1 << 64) - 1, 1)  # damaged
    (record,) = script.records()
    assert record.batches == MeasuredBatches(2, 1500, samples=48, on_cpu=2, pinned=1)
    assert script.feed("f1 b").records()[0].batches is None
    script.put(layout.BATCH, layout.pack_batch(1000, None, False, None), 1)
    assert script.feed("f1 b").records()[0].batches == MeasuredBatches(1, 1000, samples=None, on_cpu=0, pinned=None)


def test_how_many_tensors_belongs_to_the_batch_that_is_measured_next():
    script = LoaderScript(FACTS).feed("f1 b")
    for tensors in (169, 150):
        script.put(layout.TENSORS, layout.pack_pair(tensors, 2048), 1)
        script.put(layout.BATCH, layout.pack_batch(1 << 15, 8, True, None), 1)
    (record,) = script.records()
    assert record.batches == MeasuredBatches(2, 1 << 16, 16, 2, tensors=319, storage_bytes=4 << 20)
    script.feed("f1 b").put(layout.BATCH, layout.pack_batch(1 << 15, 8, True, None), 1)
    assert script.records()[0].batches == MeasuredBatches(1, 1 << 15, 8, 1)


def test_the_position_in_an_epoch_holds_until_that_ends():
    script = LoaderScript(FACTS).feed("f1 b")
    assert [(each.given, each.length) for each in script.records()] == [(None, None)]  # it may have begun before
    script.put(layout.POSITION, layout.pack_pair(7, 20), 1)
    assert [(each.given, each.length) for each in script.feed("f1 b f1 b").records()] == [(9, 20)]
    assert [(each.given, each.epochs) for each in script.feed("f1 b x1").records()] == [(None, 1)]
    assert [(each.given, each.epochs) for each in script.feed("f1 b").records()] == [(1, 0)]
    assert [(each.given, each.epochs) for each in script.feed("f1 b f1 b x1 f1 b").records()] == [(1, 1)]


@pytest.mark.parametrize(
    ("words", "epochs", "given"),
    [
        ("i1 f1 i1 f1 b f1 b i1 f1 b", 1, 1),  # a look at a batch; an epoch that was left at its end
        ("i1 f1 b f1 b i1 i1 f1 b", 1, 1),  # an iterator of which nothing was taken
        ("i1 f1 b f1 b i1 f1 f1 i1 f1 b", 1, 1),  # validation by a loader that is alike
        ("i1 f1 b f1 b i1 f1 f1", 1, None),
        ("i1 f1 f1 x1 b i1 f1 f1 x1", 1, None),  # fetched ahead of training
        ("i1 f1 f1 x1 i1 f1 f1 x1 i1 f1", 2, 1),  # nothing trains
    ],
)
def test_epochs_are_those_that_train(words, epochs, given):
    (record,) = LoaderScript(FACTS).feed(words).records()
    assert (record.epochs, record.given) == (epochs, given)


@pytest.mark.parametrize(("iterators", "given"), [((1, 1, 2), 1), ((1, 2, 2, 1), None), ((1, 1, 1), 6)])
def test_a_later_iterator_begins_another_epoch(iterators, given):
    script = LoaderScript(FACTS)
    for at, number in enumerate(iterators):
        value = 1 << layout.LOADER_SHIFT | number
        script.put(layout.FETCH_BEGIN, value)
        script.put(layout.FETCH_END, value)
        if not at:
            script.put(layout.POSITION, layout.pack_pair(4, 20), 1)
    assert [each.given for each in script.records()] == [given]


# -- the fold


def window(t, **more):
    facts = LoaderFacts(dataset="ImageSet", kind="map", workers=2, prefetch=2) if t == 1.0 else None
    return Loader(t=t, pid=100, number=0, window_s=1.0, facts=facts, **more)


def rows_of(*records):
    return session_of(*records).over("recent").of(100).loaders


@pytest.mark.parametrize(
    ("windows", "epoch"),
    [
        ([{"given": 7, "length": 20}], (0, 7, 20)),
        ([{"given": 7, "length": 20}, {"epochs": 1}], (1, None, 20)),
        ([{"given": 7, "length": 20}, {"epochs": 3, "given": 2, "length": 20}], (3, 2, 20)),
        ([{"given": 7, "length": 20}, {"given": 3, "length": 20, "epochs": 1}], (1, 3, 20)),
        ([{"given": 7}, {"given": 9}], (0, 9, None)),
    ],
)
def test_epochs_are_counted(windows, epoch):
    (loader,) = rows_of(window(float(t), fetches=1, role="train", **more) for t, more in enumerate(windows, 1))
    assert loader.epoch == epoch


def test_a_row_sums_the_last_30_seconds():
    turns = [LoaderWorker(7, 0, 10, 700.0, 100.0, 150.0, 50.0)]
    usual = {"fetches": 10, "wait_ns": 100 * MS, "ready_fetches": 10, "ready_total": 25, "ready_none": 4,
             "ready_last": 3, "role": "train", "workers": turns}  # fmt: skip
    first = window(1.0, fetches=1, wait_ns=10_000 * MS, p95_ns=10_000 * MS)
    (row,) = rows_of(first, [window(float(t), p95_ns=(15 + t % 2) * MS, **usual) for t in range(40, 70)])
    assert (row.latest.role, row.facts.dataset, row.latest.ready_last, row.ready_most) == ("train", "ImageSet", 3, 4)
    assert row.fetches_per_s == pytest.approx(10)
    assert row.wait_ms == pytest.approx(10)
    assert row.wait_p95_ms in (15.0, 16.0)
    assert row.ready_mean == pytest.approx(2.5)
    assert row.ready_none_ratio == pytest.approx(0.4)
    assert row.ready_history == (None, *[2.5] * 30) and row.ready_spans[0][1] < row.ready_spans[1][0]  # unused, a gap
    (worker,) = row.worker_rows
    assert worker.busy_ratio == pytest.approx(0.8)
    assert (worker.items_ms, worker.collate_ms, worker.wait_ms, worker.hand_over_ms) == pytest.approx((70, 10, 15, 5))


def test_workers_that_come_and_go():
    records = [
        window(float(t), fetches=1, workers=[LoaderWorker(pid, 0, 1, 1.0, 1.0, 1.0)]) for t, pid in ((1, 7), (2, 9))
    ]
    found = []
    for pid in (9, 7):
        found += rows_of(*records)[0].worker_rows
        records.append(process(pid, "worker", ppid=100, ended=True))
    found += rows_of(*records)[0].worker_rows
    assert [(worker.pid, worker.ended) for worker in found] == [(9, False), (7, False), (9, True)]


MADE = Place("set.py", 9, "__getitem__")


@pytest.mark.parametrize(
    ("noted", "facts"),
    [
        ({}, (None, None, None)),  # older torch knows of no order
        ({"in_order": None, "item": None, "collate": None}, (None, None, None)),
        ({"in_order": False}, (False, None, None)),
        ({"item": [*MADE[:3]], "collate": [*MADE[:3]]}, (None, MADE, MADE)),
    ],
)
def test_facts_may_tell_of_the_order_and_where_items_and_batches_are_made(noted, facts):
    found, _ = parsed_facts(json.dumps({**FACTS, **noted}))
    assert (found.in_order, found.item, found.collate) == facts


def test_a_data_set_of_a_notebook_is_made_in_its_cell(monkeypatch):
    monkeypatch.setattr(
        TargetFiles, "cell", lambda files, file: NotebookCell("In[3]", b"") if file == "set.py" else None
    )
    script = LoaderScript(FACTS | {"item": [*MADE[:3]]})
    script.feed("i1 f1")
    (loader,) = script.records()
    assert loader.facts.item == MADE._replace(file="In[3]")


NO_PLACES = [json.dumps({**FACTS, "item": noted}) for noted in (["set.py", "9", "__getitem__"], ["set.py"])]


@pytest.mark.parametrize("text", ["[" * 60_000, '{"n": 1e999}', "null", "{}", '"x"', *NO_PLACES])
def test_facts_that_are_no_facts_are_no_loader(text):
    whole = '{"dataset": "D", "kind": "map", "workers": 1e999, "prefetch": 2, "batch": 8, "pin": 0, "persistent": 0, '
    assert parsed_facts(text) is None
    assert parsed_facts(whole + '"context": null, "n": 1}') is None
