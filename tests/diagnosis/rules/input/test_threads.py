"""Data that threads of the training or other processes prepare: whose work is named, and which wait shows it."""

import pytest

from tests.diagnosis.cpu import BACKWARD, FORWARD, run, workers
from tests.session.records import frames, stacks, threads

PYTHON = "/v/lib/python3.11"
LOOP = frames(
    ("train.py", 10, "main", "for x, y in batches:", True),  # 30
    ("/lib/site-packages/nodes/base.py", 80, "__next__"),
    (f"{PYTHON}/threading.py", 327, "wait"),
    ("read.py", 5, "read", "out = pad(decode(path))", True),
    (f"{PYTHON}/threading.py", 382, "notify"),
    ("read.py", 9, "shuffle", "for a, b in pairs:", True),  # 35
    ("train.py", 9, "main", "x, y = batches.get()", True),
    (f"{PYTHON}/multiprocessing/queues.py", 103, "get"),
    (f"{PYTHON}/multiprocessing/connection.py", 395, "_recv"),
    ("train.py", 9, "main", "x, y = channel.recv()", True),
    ("make.py", 5, "serve", "request = channel.recv()", True),  # 40
    ("make.py", 7, "make", "x = x * noise", True),
    ("train.py", 9, "main", "x, y = make()", True),
    first=30,
)
BATCH, READ = [30, 31, 32], [33]
PASSES_ON, AT_HEAD, SHUFFLES = [30, 31, 34], [30], [30, 35]
SERVES, MAKES = [40], [40, 41]


def found(*data, reads=True, beside=()):
    """What is found of 60 samples in the data phase, of these stacks, and a thread that reads."""
    others = [(101, "reader", READ, 100)] if reads else []
    sampled = stacks(12, *data, (FORWARD, 20), (BACKWARD, 20), beside=others)
    return run({"between": 80, "backward": 20}, LOOP, sampled, *beside)[0]


@pytest.mark.parametrize("data", [[(BATCH, 60)], [(AT_HEAD, 55), (PASSES_ON, 5)]], ids=["queue", "GIL"])
def test_a_thread_that_is_waited_for_is_named(data):
    first = found(*data)
    assert (first.cause, first.where[0].function) == ("hand_rolled_loader", "read")
    assert "in a thread" in first.headline
    assert "several processes" in first.action


@pytest.mark.parametrize(
    ("data", "function"), [([(AT_HEAD, 60)], "main"), ([(SHUFFLES, 55), (PASSES_ON, 5)], "shuffle")]
)
def test_what_the_training_thread_makes_itself_is_no_other_threads(data, function):
    first = found(*data)
    assert "in a thread" not in first.headline
    assert first.where[0].function == function


@pytest.mark.parametrize("has_started", [False, True])
def test_a_thread_that_only_pickles_for_other_processes_sends_less_of_what_stays_the_same(has_started):
    pool = frames(
        ("train.py", 9, "main", "out = pool.map(partial(simulate, table), rows)", True),
        (f"{PYTHON}/multiprocessing/pool.py", 367, "map"),
        (f"{PYTHON}/threading.py", 327, "wait"),
        (f"{PYTHON}/multiprocessing/pool.py", 540, "_handle_tasks"),
        (f"{PYTHON}/multiprocessing/connection.py", 206, "send"),
        (f"{PYTHON}/multiprocessing/reduction.py", 51, "dumps"),
        first=50,
    )
    pickles = stacks(12, ([50, 51, 52], 60), (FORWARD, 20), (BACKWARD, 20), beside=[(101, "tasks", [53, 54, 55], 100)])
    children = workers(2, 0.04, (SERVES, 96), (MAKES, 4), role="child") if has_started else ()
    first = run({"between": 80, "backward": 20}, LOOP, pool, pickles, *children)[0]
    assert (first.cause, first.where[0].line) == ("hand_rolled_loader", 9)
    assert "a thread pickles what it sends to other processes" in first.headline
    assert "once, not with each task" in first.action


# -- data that other processes send


@pytest.mark.parametrize("awaited", [[36, 37, 38], [39]], ids=["queue", "line"])
def test_what_the_users_processes_make_is_named_there(awaited):
    children = workers(1, 0.4, (SERVES, 60), (MAKES, 40), role="child")
    finding = found((awaited, 60), reads=False, beside=children)
    assert "another process makes it" in finding.headline
    assert finding.where[0].function == "make"
    assert "make make() make.py:7 cheaper" in finding.action
    assert "make the data in more processes" in finding.action


def test_of_a_process_that_hardly_makes_data_the_wait_is_told_and_no_gain():
    children = workers(1, 0.02, (SERVES, 96), (MAKES, 4), role="child")
    finding = found(([39], 60), reads=False, beside=children)
    assert "another process sends it, and hardly computes" in finding.headline
    assert (finding.severity, finding.where[0].line, finding.estimated_speedup) == ("info", 5, None)
    assert "leave it if the data come at that pace; else see what serve() make.py:5 waits for" in finding.action


def test_a_process_that_waits_for_events_makes_no_data():
    server = frames(("make.py", 6, "listen", "loop.run()", True), (f"{PYTHON}/selectors.py", 468, "select"), first=60)
    children = workers(1, 0.02, ([60, 61], 96), (MAKES, 4), role="child")
    finding = found(([39], 60), reads=False, beside=[server, *children])
    assert (finding.severity, finding.where[0].line) == ("info", 6)


@pytest.mark.parametrize(("cpu_ratio", "severity"), [(0.02, "info"), (0.9, "critical")])
def test_before_another_process_is_sampled_its_cpu_time_tells_whether_it_makes_data(cpu_ratio, severity):
    finding = found(([39], 60), reads=False, beside=workers(1, cpu_ratio, role="child"))
    assert (finding.cause, finding.severity) == ("hand_rolled_loader", severity)


def test_what_the_training_process_makes_is_no_other_processes():
    finding = found(([42, 41], 60), reads=False, beside=workers(1, 1.0, (MAKES, 100)))
    assert "the training process prepares it" in finding.headline


# -- items that a pool of threads in the training process makes: a forked worker would wait for them for ever


POOLED = frames(
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


def pooled(main, pool, *cpu, cpu_count=2, beside=()):
    """What is found where 80 % of the step is in fetches; ``cpu``: of each of the pool's threads."""
    sampled = stacks(12, (main, 80), samples=100, beside=[(101 + n, "pool", pool, 100) for n in range(len(cpu))])
    rows = [(101 + n, "pool", each, "running") for n, each in enumerate(cpu)]
    used = threads(12, (100, "python", 0.2, "waiting"), *rows, cpu_ratio=0.2 + sum(cpu))
    return run({"data": 80, "forward": 8, "backward": 12}, POOLED, sampled, used, *beside, cpu_count=cpu_count)[0]


def test_workers_are_to_be_spawned_and_no_more_than_the_cores_beside_the_training():
    first = pooled(WAITS, BLURS, 0.8)
    assert (first.cause, first.where[0].function) == ("no_workers", "blur")
    assert first.headline.endswith("threads of the training process prepare it")
    loader = next(fix for fix in first.fixes if "num_workers" in fix.action)
    assert loader.action.startswith("set num_workers=1 (now 0) and multiprocessing_context='spawn'")
    assert "a forked worker would wait for in vain" in loader.action


def test_a_pool_that_uses_all_cores_leaves_none_for_workers():
    first = pooled(WAITS, BLURS, 0.78, 0.78)
    assert not any("num_workers" in fix.action for fix in first.fixes)
    assert "blur() data.py:9 cheaper" in first.action


def test_more_workers_than_cores_are_said_to_wait():
    first = pooled(WAITS, DOWNLOADS, 0.02)
    loader = next(fix for fix in first.fixes if "num_workers" in fix.action)
    assert "'spawn'" in loader.action
    assert loader.action.endswith("; more than the 2 cores, because items wait more than they compute")


@pytest.mark.parametrize(("main", "pool"), [(COMPUTES, BLURS), (WAITS, STANDS_BY)], ids=["computes", "idle pool"])
def test_what_the_training_thread_makes_itself_needs_no_spawned_worker(main, pool):
    first = pooled(main, pool, 0.3)
    assert "threads of the training process" not in first.headline
    assert not any("spawn" in fix.action for fix in first.fixes)
