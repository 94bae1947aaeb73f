"""Hangs of a training in another thread than the main one, on literal sessions."""

import pytest
from msgspec import structs

from tests.session.records import extend, frames, loop, one_process, stacks, still, threads
from tuimon.diagnosis.judging import diagnose
from tuimon.records import Frame, LoopStack, StackGroup, StandingProcess, Standstill

#: Of a program that trains in thread 107: the root of that thread, its loop, and what it may wait at.
IN_THREAD = frames(
    ("/usr/lib/python3.11/threading.py", 975, "run"),
    ("serve.py", 30, "worker", "fit(jobs.get())", True),
    ("serve.py", 20, "fit", "loss.backward()", True),
    ("/venv/lib/python3.11/site-packages/torch/_tensor.py", 626, "backward"),
    ("serve.py", 22, "fit", "with self.lock:", True),
    ("serve.py", 60, "main", "while thread.is_alive():", True),
    ("serve.py", 61, "main", "time.sleep(0.2)", True),
    ("/usr/lib/python3.11/selectors.py", 468, "select"),
    ("/usr/lib/python3.11/queue.py", 171, "get"),
    ("serve.py", 29, "worker", "job = jobs.get()", True),
    ("/usr/lib/python3.11/concurrent/futures/thread.py", 81, "_worker"),
    ("serve.py", 61, "main", "input('Enter ends it')", True),
    ("serve.py", 23, "fit", "batch = ready.get()", True),
)
BACKWARD, AT_LOCK, AT_PREFETCH, IN_POOL = [0, 1, 2, 3], [0, 1, 4], [0, 1, 12, 8], [10, 1, 12, 8]
LOOKS, SLEEPS, SERVES, AT_PROMPT = [5], [6], [5, 7], [11]
WAITS_FOR_JOB, STANDS_BY = [0, 9, 8], [10]


def standing_in_thread(training, *main, is_alive=True, more=()):
    """What is said of a program whose training thread stands like this, and its main thread like these in turn."""
    session = one_process(IN_THREAD, loop(8, {"between": 50, "backward": 50}, tid=107))
    looped = [LoopStack("backward", BACKWARD)]
    extend(session, [stacks(t, (BACKWARD, 20), tid=107, loop=looped) for t in range(1, 9)])
    living, there = ([(107, "fit", 0.0, "waiting")], [(107, "fit", training, 20)]) if is_alive else ([], [])
    for t in (25, 26):
        extend(session, still(t, t - 9.0, first_index=80, tid=107), stacks(t, *((at, 10) for at in main), beside=there))
        session.add(threads(t, (100, "python", 0.0, "waiting"), *living, cpu_ratio=0.01))
    return [finding for finding in diagnose(extend(session, more)) if finding.rule == "hang"]


@pytest.mark.parametrize("main", [(LOOKS, SLEEPS), (SERVES,), (AT_PROMPT,)])
def test_a_hang_is_of_the_thread_that_trains_whatever_the_main_thread_waits_for(main):
    (only,) = standing_in_thread(AT_LOCK, *main)
    assert only.headline.startswith("nothing has moved for 17s")
    assert only.where[0].line == 22


@pytest.mark.parametrize("training", [AT_PREFETCH, IN_POOL])
def test_a_training_that_waits_for_a_batch_of_another_thread_hangs_in_a_server_too(training):
    (only,) = standing_in_thread(training, SERVES)
    assert only.where[0].line == 23


@pytest.mark.parametrize(
    ("training", "main", "is_alive"),
    [
        (BACKWARD, SERVES, False),  # its thread has ended
        (STANDS_BY, SERVES, True),  # in a pool
        (WAITS_FOR_JOB, SERVES, True),
        (WAITS_FOR_JOB, AT_PROMPT, True),
        (AT_PREFETCH, AT_PROMPT, True),
    ],
)
def test_a_program_that_trains_now_and_then_does_not_hang_between(training, main, is_alive):
    assert not standing_in_thread(training, main, is_alive=is_alive)


def test_where_all_stacks_are_taken_the_thread_that_trains_is_the_training():
    lock = Frame("serve.py", 22, "fit", "with self.lock:", True)
    main = Frame("serve.py", 61, "main", "thread.join()", True)
    groups = [StackGroup([main], 0, [(100, 100)]), StackGroup([lock], 0, [(100, 107)])]
    rows = [StandingProcess(100, "trainer", None, "waiting", 0.0, None, 107)]
    taken = Standstill(t=25.5, pid=0, quiet_s=16.0, groups=groups, processes=rows)
    (only,) = standing_in_thread(AT_LOCK, LOOKS, SLEEPS, more=[taken])
    assert only.headline == "nothing has moved for 17s"
    assert [place.line for place in only.where] == [22]
    gone = structs.replace(taken, groups=groups[:1])
    assert not standing_in_thread(AT_LOCK, LOOKS, SLEEPS, more=[gone])  # it has ended
