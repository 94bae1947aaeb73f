"""Items that a pool of threads in the training process makes: a forked worker would wait for them for ever."""

import pytest

from tests.diagnosis.cpu import run, workers
from tests.session.records import frames, threads
from tuimon.records import StackCount, Stacks

LINES = frames(
    ("train.py", 44, "main", "for x, y in loader:", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_fetch"),
    ("/lib/site-packages/torch/utils/data/_utils/fetch.py", 54, "fetch"),
    ("data.py", 20, "__getitem__", "return pool.submit(blur, path).result()", True),
    ("/usr/lib/python3.11/concurrent/futures/_base.py", 451, "result"),
    ("/usr/lib/python3.11/threading.py", 327, "wait"),
    ("/usr/lib/python3.11/threading.py", 1002, "_bootstrap"),
    ("/usr/lib/python3.11/concurrent/futures/thread.py", 83, "_worker"),
    ("data.py", 9, "blur", "out[i] += kernel[j] * row[i + j]", True),
    ("data.py", 8, "blur", "body = requests.get(path)", True),
    ("/lib/site-packages/requests/api.py", 73, "get"),
    ("/usr/lib/python3.11/queue.py", 171, "get"),
    first=30,
)
WAITS, COMPUTES = [30, 31, 32, 33, 34, 35], [30, 31, 32, 33]
BLURS, DOWNLOADS, STANDS_BY = [36, 37, 38], [36, 37, 39, 40], [36, 37, 41]


def found(main, pool, *cpu, cpu_count=2, beside=()):
    """What is found where 80 % of the step is in fetches; ``cpu``: of each of the pool's threads."""
    sampled = [StackCount(100, "MainThread", main, 80)]
    sampled += [StackCount(101 + n, "pool", pool, 100) for n in range(len(cpu))]
    stacks = Stacks(t=12, pid=100, window_s=1.0, samples=100, stacks=sampled)
    rows = [(101 + n, "pool", each, "running") for n, each in enumerate(cpu)]
    used = threads(12, (100, "python", 0.2, "waiting"), *rows, cpu_ratio=0.2 + sum(cpu))
    return run({"data": 80, "forward": 8, "backward": 12}, LINES, stacks, used, *beside, cpu_count=cpu_count)[0]


def test_workers_are_to_be_spawned_and_no_more_than_the_cores_beside_the_training():
    first = found(WAITS, BLURS, 0.8)
    assert (first.cause, first.where[0].function) == ("no_workers", "blur")
    assert first.headline.endswith("threads of the training process prepare it")
    loader = next(fix for fix in first.fixes if "num_workers" in fix.action)
    assert loader.action.startswith("set num_workers=1 (now 0) and multiprocessing_context='spawn'")
    assert "a forked worker would wait for in vain" in loader.action


def test_a_pool_that_uses_all_cores_leaves_none_for_workers():
    first = found(WAITS, BLURS, 0.78, 0.78)
    assert not any("num_workers" in fix.action for fix in first.fixes)
    assert "blur() data.py:9 cheaper" in first.action


def test_more_workers_than_cores_are_said_to_wait():
    first = found(WAITS, DOWNLOADS, 0.02)
    loader = next(fix for fix in first.fixes if "num_workers" in fix.action)
    assert "'spawn'" in loader.action
    assert loader.action.endswith("; more than the 2 cores, as items wait instead of computing")


@pytest.mark.parametrize(("main", "pool"), [(COMPUTES, BLURS), (WAITS, STANDS_BY)], ids=["computes", "idle pool"])
def test_what_the_training_thread_makes_itself_needs_no_spawned_worker(main, pool):
    first = found(main, pool, 0.3)
    assert "threads of the training process" not in first.headline
    assert not any("spawn" in fix.action for fix in first.fixes)


@pytest.mark.parametrize(("children", "threads_cpu"), [(0.8, 0.1), (0.8, None), (0.1, 0.8)])
def test_what_a_pool_of_processes_makes_is_made_there(children, threads_cpu):
    """The training thread waits for a thread that hands the answers of two processes on."""
    beside = workers(2, children, ([38], 40), ([41], 20), role="child")
    cpu = () if threads_cpu is None else (threads_cpu,)
    first = found(WAITS, DOWNLOADS, *cpu, beside=beside)
    by_process = children > (threads_cpu or 0.0)
    assert ("another process makes it" in first.headline) == by_process
    assert (first.where[0].function, first.where[0].line) == ("blur", 9 if by_process else 8)
    assert any("spawn" in fix.action for fix in first.fixes) == (not by_process)
