"""DataLoader workers that are started anew for every epoch, on literal sessions."""

import pytest
from msgspec import structs

from tests.diagnosis.cpu import AUGMENT, NO_GPU, STARVED
from tests.session.records import by_rule, extend, frames, loop, one_process, process, stacks, thread
from tuimon.diagnosis.evidence.data import has_ready_batches
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.judging import diagnose, diagnose_run
from tuimon.records import Loader, LoaderFacts, LoaderWorker
from tuimon.session.session import Session
from tuimon.session.stacks.samples import Sample, Samples
from tuimon.session.stacks.trie import Trie

DATALOADER = "/lib/site-packages/torch/utils/data/dataloader.py"
LOOP = frames(
    ("train.py", 44, "main", "for x, y in loader:", True),
    (DATALOADER, 438, "_get_iterator"),
    (DATALOADER, 1176, "__init__"),
    (DATALOADER, 725, "__next__"),
    (DATALOADER, 1654, "_shutdown_workers"),
    ("/lib/python3.11/selectors.py", 415, "select"),
    ("train.py", 46, "main", "loss.backward()", True),
    ("/lib/site-packages/torch/autograd/__init__.py", 9, "backward"),
)
STARTING, ENDING, WAITING, BACKWARD = [0, 1, 2], [0, 3, 4, 5], [0, 3, 5], [6, 7]
FACTS = LoaderFacts(dataset="Rows", kind="iterable", workers=1, prefetch=2)


def epochs(number=20):
    """An epoch a second, each with a worker of its own, of which py-spy takes a few samples."""
    session = one_process(NO_GPU, AUGMENT)
    facts = {"window_s": 1.0, "role": "train", "fetches": 10, "wait_ns": 62 * 10**7, "facts": FACTS}
    for t, pid in enumerate(range(201, 201 + number), 1):
        made = LoaderWorker(pid, 0, 10, items_ms=880.0, collate_ms=20.0, wait_ms=100.0)
        extend(session, loop([t], STARVED), process(pid, "worker", ppid=100, t=t - 0.9))
        session.add(Loader(t=t, pid=100, number=1, workers=[made], **facts))
        seen = stacks(t, ([0, 1], 4), ([0], 1), pid=pid)
        extend(session, seen, process(pid, "worker", ppid=100, t=t - 0.05, ended=True))
    return session


def test_samples_of_workers_that_come_and_go_add_up():
    workers = evidence_of(epochs().over("recent").of(100)).data.workers
    assert (workers.hot.place.line, workers.hot.samples) == (31, 80)
    for findings in (diagnose(epochs()), diagnose_run(epochs(), [])):
        first = findings[0]
        assert (first.rule, first.severity, first.where[0].line) == ("input_bound", "critical", 31)
        assert "the worker is 90 % busy" in first.headline


TAKING = frames(
    ("train.py", 44, "main", "for x, y in loader:", True),
    ("/lib/site-packages/torch/utils/data/dataloader.py", 9, "__next__"),
    ("/lib/site-packages/torch/multiprocessing/reductions.py", 538, "rebuild_storage_fd"),
    ("/lib/python3.11/multiprocessing/queues.py", 103, "get"),
    ("train.py", 46, "main", "loss.backward()", True),
    ("/lib/site-packages/torch/autograd/__init__.py", 9, "backward"),
    ("/lib/python3.11/multiprocessing/connection.py", 395, "_recv"),
    ("/lib/site-packages/torch/autograd/profiler.py", 780, "__exit__"),
)
#: What the training thread does in a fetch: it takes a batch, waits for its memory, for a batch, and gives up the GIL.
TAKES, RECEIVES, WAITS, LEAVES = [0, 1, 2], [0, 1, 2, 6], [0, 1, 3], [0, 1, 7]


@pytest.mark.parametrize(
    ("fetches", "anew", "brief_s", "cause"),
    [
        ([(TAKES, 28), (WAITS, 2)], False, None, "hand_over"),
        ([(TAKES, 12), (LEAVES, 8), (WAITS, 10)], False, None, "hand_over"),
        ([(TAKES, 8), (WAITS, 22)], False, None, None),
        ([(RECEIVES, 28), (WAITS, 2)], False, 1.6, "hand_over"),  # other children used that
        ([(RECEIVES, 28), (WAITS, 2)], True, 0.2, "hand_over"),
        # workers that live briefly use the cores that they can have, and hold the GIL
        ([(RECEIVES, 28), (WAITS, 2)], True, 1.6, "slow_item"),
        ([(TAKES, 28), (WAITS, 2)], True, 1.6, "hand_over"),  # or start and end for all of that
    ],
)
def test_without_markers_samples_of_the_fetch_show_that_batches_lie_ready(fetches, anew, brief_s, cause):
    worker = frames(
        ("/lib/site-packages/torch/utils/data/_utils/worker.py", 300, "_worker_loop"),
        ("/lib/python3.11/multiprocessing/queues.py", 103, "get"),
        ("data.py", 31, "augment", "out = cv(img)", True),
        first=10,
    )
    session = one_process(NO_GPU, TAKING, worker, process(201, "worker", ppid=100), markers=False)
    for t in range(1, 13):
        pid = 201 + t if anew else 201
        if anew:
            extend(session, process(pid - 1, "worker", ppid=100, t=t - 0.9, ended=True))
            extend(session, process(pid, "worker", ppid=100, t=t - 0.9))
        extend(session, stacks(t, *fetches, ([4, 5], 60)), stacks(t, ([10, 11], 18), ([10, 12], 2), pid=pid))
        session.add(thread(t, 0.25, ended_cpu_s=brief_s))
    first = by_rule(session)["input_bound"]
    assert first.cause == cause


def test_without_markers_a_thread_at_work_in_a_fetch_may_wait_for_a_core_where_workers_do():
    table = Trie()
    table.add_frames(0, TAKING.frames)
    data = Samples(tuple(Sample(table.node(ids), n, "data") for ids, n in ((TAKES, 60), (WAITS, 10))))
    busy = structs.replace(
        evidence_of(Session().over("recent").of(100)).data.workers, number=4, busy_ratio=0.65, cpu_ratio=0.6
    )
    assert has_ready_batches(None, structs.replace(busy, ran_ratio=0.65), data)
    crowded = structs.replace(busy, cpu_ratio=0.27, ran_ratio=0.65)
    assert not has_ready_batches(None, crowded, data)
    assert has_ready_batches(None, structs.replace(crowded, number=1), data)


def attached(waiting, *, anew):
    """Two workers, new ones each second if ``anew``; the data phase waits for batches in so many samples of 40."""
    session, starts = one_process(NO_GPU, LOOP, markers=False), 40 - waiting
    fetches = (STARTING, starts // 2), (ENDING, starts - starts // 2), (WAITING, waiting)
    for t in range(1, 13):
        for pid in (200 + 2 * t * anew, 201 + 2 * t * anew):
            ends = [process(pid, "worker", ppid=100, t=t - 0.1, ended=True)] if anew else []
            extend(session, process(pid, "worker", ppid=100, t=t - 0.9), ends)
        session.add(stacks(t, *fetches, (BACKWARD, 40)))
    return session


@pytest.mark.parametrize(("waiting", "anew", "told"), [(10, True, True), (30, True, False), (10, False, False)])
def test_their_starts_are_the_cause_where_most_of_the_wait_is_there(waiting, anew, told):
    first = by_rule(attached(waiting, anew=anew))["input_bound"]
    assert ("restarted for every epoch" in first.headline) == told
    assert any("persistent_workers=True: workers then stay" in fix.action for fix in first.fixes) == anew


def test_keeping_them_gains_no_more_than_the_starts_take():
    """Of 80 samples 30 are starts; workers of whom nothing else is known may set the pace meanwhile."""
    first, *_ = diagnose(attached(10, anew=True))
    keeping = next(fix for fix in first.fixes if "persistent_workers" in fix.action)
    assert 1.26 <= keeping.gain.low <= keeping.gain.high <= 80 / 55
