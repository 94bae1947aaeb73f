"""A sleep that sets the pace of a loop costs nothing; one for which a batch waits does."""

import pytest

from tests.diagnosis.cpu import BACKWARD, FORWARD, loader, run, workers
from tests.session.records import frames, stacks, threads
from tuimon.records import Frame

LINES = frames(
    ("train.py", 40, "main", "state, reward, done = robot.step(action)", True),  # 30
    ("robot.py", 8, "step", "self.limiter.wait()", True),
    ("robot.py", 3, "wait", "time.sleep(left)", True),
    ("robot.py", 9, "step", "time.sleep(0.03)", True),
    ("train.py", 41, "main", "rate.wait()", True),
    ("train.py", 42, "main", "time.sleep(0.04)", True),  # 35
    ("train.py", 43, "main", "page = site.page()", True),
    ("site.py", 4, "page", "time.sleep(DELAY)", True),
    ("site.py", 5, "page", "return requests.get(self.url)", True),
    ("/lib/site-packages/requests/api.py", 73, "get"),
    ("train.py", 44, "main", "batch = make_batch()", True),  # 40
    ("data.py", 2, "make_batch", "time.sleep(0.01)", True),
    ("train.py", 45, "main", "x = feed.messages.get()", True),
    ("/v/lib/python3.11/queue.py", 171, "get"),
    ("/v/lib/python3.11/threading.py", 327, "wait"),
    ("feed.py", 12, "run", "self.limiter.wait()", True),  # 45
    ("feed.py", 5, "wait", "time.sleep(left)", True),
    ("feed.py", 13, "run", "self.messages.put(self.read())", True),
    ("feed.py", 9, "read", "time.sleep(0.03)", True),
    ("data.py", 7, "fetch", "time.sleep(0.1 * 2**attempt)", True),
    ("train.py", 41, "main", "throttle()  # be nice", True),  # 50
    ("robot.py", 5, "__call__", "time.sleep(left)", True),
    ("train.py", 41, "main", "with rate:", True),
    ("robot.py", 6, "__enter__", "time.sleep(left)", True),
    ("train.py", 44, "main", "batch = make(queue)", True),
    ("data.py", 3, "__call__", "time.sleep(0.01)", True),  # 55
    ("feed.py", 4, "take", "time.sleep(self.pause)", True, "", "", None, None, (), True, (), True),
    ("train.py", 41, "main", "ready, _, _ = select.select([pipe], [], [], 1.0)", True),
    ("train.py", 41, "main", "signal.pause()", True),
    ("train.py", 41, "main", "self.timers.run()", True),
    ("/v/lib/python3.11/sched.py", 149, "run"),  # 60
    ("train.py", 41, "main", "events.run_forever()", True),
    ("/v/lib/python3.11/asyncio/runners.py", 190, "run"),
    ("/v/lib/python3.11/selectors.py", 468, "select"),
    ("/v/lib/python3.11/threading.py", 975, "run"),
    Frame("feed.py", 14, "listen", "time.sleep(0.05)", True, loop=True, loops=1),  # 65
    ("feed.py", 15, "listen", "self.messages.put(self.socket.recv(4096))", True),
    ("feed.py", 16, "load", "return [decode(path) for path in paths]", True),
    ("train.py", 41, "main", "x = unpack(feed.recv(4096))", True),
    ("train.py", 52, "main", "signal.pause()", True),
    ("train.py", 41, "main", "for line in service.stdout:", True),  # 70
    ("<string>", 9, "<module>", "main()", True),
    Frame("<string>", 5, "main", "time.sleep(0.05)", True, loop=True, loops=1),
    Frame("<string>", 6, "main", "print(read())", True, loop=True, loops=1),
    ("train.py", 41, "main", "y = int(input('label? '))", True),
    Frame("<string>", 2, "read", "time.sleep(0.05)", True, loop=True, loops=1),  # 75
    ("/lib/site-packages/torch/utils/data/dataloader.py", 700, "__next__"),
    ("data.py", 9, "__getitem__", "return decode(feed.recv(4096))", True),
    ("data.py", 8, "fetch", "self.lock.acquire()", True),
    ("feed.py", 20, "run", "while not self.halt.wait(0.06):", True),
    first=30,
)
PASSES = ((FORWARD, 10), (BACKWARD, 20))


def found(phases, *counted, thread=None, beside=(), rule=None):
    others = [(101, "feed", thread, 80)] if thread is not None else []
    windows = [stacks(t, *counted, *PASSES, samples=100, beside=others) for t in range(1, 13)]
    return next(each for each in run(phases, LINES, *windows, *beside) if rule in (None, each.rule))


@pytest.mark.parametrize(
    ("counted", "thread", "line"),
    [
        ([([30, 31, 32], 60), ([30], 10)], None, "wait() robot.py:3"),  # by the limiter of a robot
        ([([30, 33], 70)], None, "step() robot.py:9"),  # by its real time
        ([([34, 32], 70)], None, "wait() robot.py:3"),  # by a limiter
        ([([50, 51], 70)], None, "__call__() robot.py:5"),  # ... that is called
        ([([52, 53], 70)], None, "__enter__() robot.py:6"),  # ... that is entered
        ([([35], 70)], None, "main() train.py:42"),  # by itself
        ([([36, 37], 65), ([36, 38, 39], 5)], None, "page() site.py:4"),  # by what is polite to a site
        ([([42, 43, 44], 70)], [45, 46], "wait() feed.py:5"),  # by a thread that may read so often
        ([([42, 43, 44], 70)], [64, 65], "listen() feed.py:14"),  # by a thread with a loop of its own
    ],
)
def test_a_loop_is_paced(counted, thread, line):
    first = found({"between": 80, "backward": 20}, *counted, thread=thread)
    assert first.headline.endswith(f"waits for data: the loop is paced by time.sleep() at {line}")
    assert (first.severity, first.estimated_speedup, first.best.least) == ("info", None, None)


@pytest.mark.parametrize(
    ("awaits", "thread", "line"),
    [
        ([57], None, "main() train.py:41"),
        ([58], None, "main() train.py:41"),
        ([59, 60], None, "main() train.py:41"),
        ([61, 62, 63], None, "main() train.py:41"),
        ([42, 43, 44], [64, 66], "main() train.py:45"),
        ([42, 43, 44], [79, 44], "main() train.py:45"),
        ([68], None, "main() train.py:41"),
        ([74], None, "main() train.py:41"),
    ],
    ids=["pipe", "signal", "timer", "event loop", "thread that listens", "its timer", "another machine", "person"],
)
def test_events_come_at_their_own_pace(awaits, thread, line):
    first = found({"between": 80, "backward": 20}, (awaits, 70), thread=thread)
    assert first.headline.endswith(f"waits for data: the loop waits for the next event or message at {line}")
    assert (first.severity, first.estimated_speedup) == ("info", None)
    assert first.action.startswith(f"see who keeps {line} waiting")


def test_a_queue_that_a_listening_thread_fills_is_named_by_its_line_also_where_the_loop_waits_for_the_gil():
    first = found({"between": 80, "backward": 20}, ([42, 43, 44], 10), ([42], 60), thread=[64, 66])
    assert first.headline.endswith("waits for data: the loop waits for the next event or message at main() train.py:45")


@pytest.mark.parametrize(("kind", "cause"), [("map", "no_workers"), ("iterable", None)])
def test_an_item_that_a_data_set_asks_another_machine_for_is_no_event(kind, cause):
    """An index says which one; a data set without indices may be fed."""
    made = loader(0, (10, 800, 10, 0), kind=kind)
    first = found({"data": 80, "backward": 20}, ([BACKWARD[0], 76, 77], 70), beside=[made])
    assert (first.rule, first.cause) == ("input_bound", cause)


def test_an_event_between_the_batch_and_the_model_is_no_part_of_the_forward_pass():
    """Markers count all time from a fetch to backward as forward."""
    asks = frames(("train.py", 45, "main", "y = asyncio.run(ask(x))", True), first=90)
    windows = [stacks(t, ([90, 62, 63], 70), ([3, 4], 5), *PASSES, samples=105) for t in range(1, 13)]
    first = run({"data": 5, "forward": 75, "backward": 20}, LINES, asks, *windows)[0]
    assert first.headline.endswith("waits for data: the loop waits for the next event or message at main() train.py:45")
    assert first.severity == "info"


def test_an_event_for_which_the_loop_waits_after_its_update_costs_nothing_either():
    first = found({"between": 80, "backward": 20}, ([69], 70))
    assert first.headline.endswith("is side work: the loop waits for the next event or message at main() train.py:52")
    assert (first.severity, first.estimated_speedup) == ("info", None)


def test_an_event_loop_that_waits_for_a_thread_of_the_program_waits_for_what_that_makes():
    first = found({"between": 80, "backward": 20}, ([61, 62, 63], 70), thread=[64, 67])
    assert "it is prepared in a thread" in first.headline
    assert (first.severity, first.where[0].function) == ("critical", "load")


def test_waits_for_a_core_beside_the_sleep_leave_it_the_pace():
    waits = threads(12, (100, "python", 0.1, "waiting", 0.75), cpu_ratio=0.1)
    first = found({"data": 70, "forward": 10, "backward": 20}, ([30, 31, 32], 70), beside=[waits], rule="input_bound")
    assert first.severity == "info"
    assert first.headline.startswith("70 % of each step waits for data: the loop is paced by time.sleep()")
    assert first.share_of_step == pytest.approx(0.7)  # as the phases have it


@pytest.mark.parametrize(("paced", "share"), [(4, 0.7), (14, 0.56)], ids=["too little for a finding", "much"])
def test_time_of_other_rules_is_left_out_only_if_they_may_report_it(paced, share):
    counted = ([40, 41], 70 - paced), ([30, 31, 32], paced)
    first = found({"between": 80, "backward": 20}, *counted, rule="input_bound")
    assert first.headline.startswith(f"{100 * share:.0f} % of each step waits for data")
    assert first.share_of_step == pytest.approx(share)


@pytest.mark.parametrize(
    ("counted", "thread", "cause", "line"),
    [
        ([([40, 41], 70)], None, "hand_rolled_loader", "make_batch() data.py:2"),
        ([([54, 55], 70)], None, "hand_rolled_loader", "__call__() data.py:3"),
        ([([42, 43, 44], 70)], [47, 48], "hand_rolled_loader", "read() feed.py:9"),
    ],
    ids=["makes a batch", "an object that makes one", "thread that reads"],
)
def test_what_a_batch_waits_for_is_no_pace(counted, thread, cause, line):
    first = found({"between": 80, "backward": 20}, *counted, thread=thread)
    assert (first.severity, first.cause) == ("critical", cause)
    assert any(f"remove or shorten the sleep at {line}" in fix.action for fix in first.fixes)
    assert not any("cheaper" in fix.action for fix in first.fixes)


def test_a_worker_that_waits_to_try_again_is_named_with_its_wait():
    fetching = stacks(12, ([3, 4], 70), *PASSES)
    first = run({"data": 80, "forward": 20}, LINES, fetching, *workers(2, 0.03, ([0, 49], 40)))[0]
    assert first.cause == "workers_saturated"
    assert first.headline.endswith("both workers are blocked, not computing (3 % CPU): each sleeps")
    assert [fix.action for fix in first.fixes][1:] == [
        "remove or shorten the sleep at fetch() data.py:7, unless it limits the pace on purpose"
    ]


def test_workers_that_wait_for_one_lock_would_make_batches_at_once_without_it():
    fetching = stacks(12, ([3, 4], 70), *PASSES)
    first = run({"data": 80, "forward": 20}, LINES, fetching, *workers(2, 0.03, ([0, 78], 40)))[0]
    assert first.headline.endswith("both workers are blocked, not computing (3 % CPU): each waits for a lock")
    (fix,) = first.fixes  # more workers would wait for it as well
    assert fix.action == "see who keeps fetch() data.py:8 waiting, and hold the lock only for what needs it"
    assert fix.change.to == 0.5
    one = run({"data": 80, "forward": 20}, LINES, fetching, *workers(1, 0.03, ([0, 78], 40)))[0]
    assert one.best.change.to == 0.5  # another rank's worker, or another program, takes it in turn with this one


@pytest.mark.parametrize("by_workers", [False, True])
def test_a_loop_that_polls_is_told_to_wait_before_more_workers_are_advised(by_workers):
    if by_workers:
        counted, row, phases = ([3, 4], 70), workers(2, 0.03, ([0, 56], 40)), {"data": 80, "forward": 20}
    else:
        counted, row, phases = ([40, 56], 70), (), {"between": 80, "backward": 20}
    first, *others = found(phases, counted, thread=[64, 67], beside=row, rule="input_bound").fixes
    assert first.action.startswith("make take() feed.py:4 cheaper (let it wait: queue.Queue")
    assert any("workers" in fix.action for fix in others)


PACED_THERE = "info", "the loop is paced by time.sleep() at main() <string>:5"


@pytest.mark.parametrize(
    ("awaits", "serves", "severity", "says"),
    [
        ([70], [71, 72], *PACED_THERE),
        ([70], [71, 73, 75], "critical", "another process makes it"),  # it reads
        # the loop polls
        ([40, 56], None, "info", "the loop is paced by time.sleep() at take() feed.py:4"),  # for a file of others
        ([40, 56], [71, 72], *PACED_THERE),
        ([40, 56], [71, 73, 75], "critical", "another process makes it"),
    ],
)
def test_a_program_that_sleeps_in_its_own_loop_sends_at_that_pace(awaits, serves, severity, says):
    service = workers(1, 0.02, (serves, 100), role="child") if serves else ()
    first = found({"between": 80, "backward": 20}, (awaits, 70), beside=service, rule="input_bound")
    assert first.severity == severity and first.headline.endswith(f"waits for data: {says}")
