"""Standstills before the first whole step, on literal sessions."""

import pytest

from tests.session.records import frames, one_process, process, steps, still, thread, threads
from tuimon.diagnosis.judging import diagnose
from tuimon.monitor.live_verdicts import suspicion
from tuimon.records import Frame, Loader, LoaderFacts, LoaderWorker, StackGroup, StandingProcess, Standstill

ROOT = "/site-packages/torch/utils/data/"
FETCH = [
    Frame("train.py", 20, "main", "for batch in loader:", True),
    Frame(ROOT + "dataloader.py", 725, "__next__"),
    Frame("/usr/lib/python3.11/multiprocessing/connection.py", 440, "_poll"),
    Frame("/usr/lib/python3.11/selectors.py", 415, "select"),
]
IN_WORKER = [
    Frame("train.py", 20, "main", "for batch in loader:", True),
    Frame(ROOT + "_utils/worker.py", 300, "_worker_loop"),
    Frame(ROOT + "_utils/fetch.py", 54, "fetch"),
]
FUTURE = [
    Frame("data.py", 15, "__getitem__", "return pool.submit(read, index).result()", True),
    Frame("/usr/lib/python3.11/concurrent/futures/_base.py", 451, "result"),
    Frame("/usr/lib/python3.11/threading.py", 327, "wait"),
]
LOCK = [Frame("data.py", 15, "__getitem__", "with self.lock:", True)]
OF_PROCESSES = [
    Frame("data.py", 15, "__getitem__", "with self.lock:", True),
    Frame("/usr/lib/python3.11/multiprocessing/synchronize.py", 98, "__enter__"),
]
SLEEP = [Frame("data.py", 15, "__getitem__", "time.sleep(60)", True)]
CALL = [Frame("data.py", 15, "__getitem__", "return library.fetch(index)", True)]
PROGRAM = [
    Frame("data.py", 15, "__getitem__", "subprocess.run(command)", True),
    Frame("/usr/lib/python3.11/subprocess.py", 550, "run"),
    Frame("/usr/lib/python3.11/subprocess.py", 1264, "wait"),
]
IMPORT = [
    Frame("data.py", 15, "__getitem__", "import library", True),
    Frame("<frozen importlib._bootstrap_external>", 1600, "_fill_cache"),
]
ALL_REDUCE = [
    Frame("train.py", 22, "main", "loss.backward()", True),
    Frame("/site-packages/torch/distributed/distributed_c10d.py", 2700, "all_reduce"),
]


def standing(
    worker=FUTURE,
    quiet_s=16.0,
    own=FETCH,
    beside=(),
    unlisted=0,
    context="fork",
    cpu=(0.0, 0.0),
    is_taken=True,
    made=(),
):
    """A training in its first step, with a worker, pid 101; or with records of the steps that it has ``made``.

    ``beside``: the stacks of other threads in that; ``unlisted``: how many more have no code of the user's.
    """
    facts = LoaderFacts("Data", "map", 1, 2, 4, context=context)
    groups = [StackGroup(own, 0, [(100, 100)]), StackGroup([*IN_WORKER, *worker], 0, [(101, 101)])]
    groups += [StackGroup(list(stack), 0, [(101, 111)]) for stack in beside]
    ends_s = 3.0 + quiet_s
    in_worker = [(101 + 10 * n, "python", cpu[1], "waiting") for n in range(1 + len(beside) + unlisted)]
    rows = [StandingProcess(100, "trainer"), StandingProcess(101, "worker")]
    taken = [Standstill(t=ends_s, pid=0, quiet_s=quiet_s, processes=rows, groups=groups)]
    return one_process(
        process(101, role="worker", ppid=100),
        frames(("train.py", 20, "main", "for batch in loader:", True)),
        Loader(t=3.0, pid=100, number=0, window_s=1.0, facts=facts, workers=[LoaderWorker(101, 0)]),
        thread(ends_s, cpu[0], state="waiting"),
        threads(ends_s, *in_worker, pid=101, cpu_ratio=cpu[1]),
        *made,
        still(ends_s, quiet_s, "data", first_index=sum(each.count for each in made)),
        *(taken if is_taken else ()),
    )


def hangs(**facts):
    return [finding for finding in diagnose(standing(**facts)) if finding.rule == "hang"]


def test_it_may_be_the_worker_of_a_later_loader():
    """As that of the first validation, which a thread's lock stops that was free at the first fork."""
    (only,) = hangs(worker=LOCK, made=[steps(3.0, {"forward": 4, "backward": 6}, count=100)])
    assert "multiprocessing_context='spawn'" in only.action


@pytest.mark.parametrize(
    "facts",
    [
        {"context": "spawn"},
        {
            "beside": [[Frame("pool.py", 9, "run", "with self.lock:", True)]],
            "quiet_s": 61.0,
        },  # it has one, which stands
    ],
)
def test_the_fork_is_blamed_where_it_alone_explains_the_wait(facts):
    (only,) = hangs(**facts)
    assert "fork" not in only.action


@pytest.mark.parametrize(
    "facts",
    [
        {"quiet_s": 14.0},
        {"is_taken": False},  # other threads are not known yet
        {"unlisted": 1, "quiet_s": 300.0},  # it has a thread, which may sleep or receive
        {"cpu": (0.0, 0.9)},
        {"cpu": (0.9, 0.0)},
        {"worker": SLEEP},
        {"worker": SLEEP, "quiet_s": 300.0},
        {"worker": PROGRAM, "quiet_s": 300.0},
        {"worker": IMPORT, "quiet_s": 300.0},
        {"worker": CALL, "quiet_s": 59.0},
        {"worker": OF_PROCESSES, "quiet_s": 59.0},
        {"beside": [[Frame("pool.py", 9, "run", "time.sleep(60)", True)]], "quiet_s": 300.0},
        {"own": [Frame("train.py", 20, "main", "time.sleep(60)", True)], "quiet_s": 300.0},
        {"own": [Frame("train.py", 20, "main", "input('go on?')", True)], "quiet_s": 300.0},
        {"own": [Frame("train.py", 21, "main", "loss.item()", True)], "quiet_s": 300.0},  # a GPU may compute
        {"own": ALL_REDUCE, "quiet_s": 59.0},  # other nodes may still start
    ],
)
def test_what_may_go_on_by_itself_is_no_hang(facts):
    assert hangs(**facts) == []


@pytest.mark.parametrize("facts", [{"worker": CALL}, {"worker": OF_PROCESSES}, {"own": ALL_REDUCE}])
def test_what_may_wait_for_a_start_elsewhere_is_given_a_minute(facts):
    (only,) = hangs(quiet_s=61.0, **facts)
    assert "fork" not in only.action


def test_the_stacks_are_taken_while_it_is_unknown_who_waits_for_whom():
    found = suspicion(standing(is_taken=False))
    assert found is not None and [each.pid for each in found.processes] == [100, 101]
    assert suspicion(standing(worker=SLEEP)) is None
