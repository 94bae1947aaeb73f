"""What is no hang, or one told sooner: a training that is over, the other end of a connection, a busy main thread."""

import pytest

from tests.session.records import frames, loop, one_process, stacks, still, threads
from tuimon.diagnosis.judging import diagnose
from tuimon.records import Frame, LoopStack, StackGroup, StandingProcess, Standstill
from tuimon.session.state import OVER, run_state

LOOP = ("train.py", 5, "fit", "loss.backward()", True), ("/site-packages/torch/_tensor.py", 626, "backward")
SERVES = ("train.py", 9, "main", "serve()", True), ("/usr/lib/python3.11/selectors.py", 415, "select")
SLEEPS = (("train.py", 9, "main", "time.sleep(1)", True),)
WAITS = ("train.py", 9, "main", "ends.wait()", True), ("/usr/lib/python3.11/threading.py", 607, "wait")
EXITS = (("/usr/lib/python3.11/threading.py", 1590, "_shutdown"),)  # Python waits for its threads that are not daemons
ANSWERS = (("train.py", 9, "main", "request = connection.recv(4096)", True),)
LOCK = (("train.py", 9, "main", "with self.lock:", True),)
BATCH = (
    ("train.py", 9, "test", "for batch in loader:", True),
    ("/site-packages/torch/utils/data/dataloader.py", 700, "__next__"),
    ("/usr/lib/python3.11/selectors.py", 415, "select"),
)
SAVES = (("train.py", 9, "main", "file.write(state)", True),)


def standing(place, quiet_s, *, taken=True, cpu=0.0, main_cpu=0.0, in_thread=False, **of_process):
    """A training that has stood at ``place`` for ``quiet_s``; in thread 107 where not in the main one."""
    tid, end = 107 if in_thread else 100, 9.0 + quiet_s
    looped = stacks(8, ([0, 1], 20), tid=tid, loop=[LoopStack("backward", [0, 1])])
    trained = [*loop(8, {"forward": 50, "backward": 50}, tid=tid), looped]
    rows = [(100, "python", main_cpu, "waiting"), *([(107, "fit", 0.0, "waiting")] if in_thread else [])]
    stands = still(end, quiet_s, first_index=80, tid=tid), threads(end, *rows, cpu_ratio=cpu + main_cpu)
    seen = stacks(end, (range(2, 2 + len(place)), 20), tid=tid)
    row = StandingProcess(100, "trainer", io_bytes_per_s=0.0, tid=tid if in_thread else None, **of_process)
    groups = [StackGroup([Frame(*each) for each in place], 0, [(100, tid)])]
    taken_at_end = [Standstill(t=end, pid=0, quiet_s=quiet_s, processes=[row], groups=groups)] if taken else []
    return one_process(frames(*LOOP, *place), trained, stands, seen, taken_at_end)


def hangs(place, quiet_s, **more):
    return [found for found in diagnose(standing(place, quiet_s, **more)) if found.rule == "hang"]


@pytest.mark.parametrize("place", [SERVES, SLEEPS, WAITS, ANSWERS, EXITS])
def test_a_program_below_its_training_loop_never_hangs_by_waiting_and_says_where_it_is(place):
    assert not hangs(place, 300.0, has_left=True)
    assert hangs(place, 70.0)
    assert run_state(standing(place, 300.0, has_left=True)).doing == OVER
    assert run_state(standing(place, 300.0)).doing != OVER


@pytest.mark.parametrize("place", [LOCK, BATCH, SAVES])
def test_what_it_waits_for_below_its_loop_may_still_be_a_hang(place):
    assert hangs(place, 70.0, has_left=True)


def test_of_what_may_be_over_nothing_is_told_before_all_stacks_are_known():
    assert not hangs(WAITS, 18.0, taken=False)
    assert hangs(WAITS, 18.0) and hangs(WAITS, 26.0, taken=False)


def test_who_waits_for_a_process_that_waits_too_hangs_at_once():
    assert not hangs(ANSWERS, 18.0)
    (own,) = hangs(ANSWERS, 18.0, peers=[100])
    assert own.headline.endswith("main() train.py:9; the other end of its connection is in the same process")
    (other,) = hangs(ANSWERS, 18.0, peers=[100, 123])
    assert other.headline.endswith("train.py:9; process 123, at the other end of its connection, waits too")


def test_a_main_thread_beside_the_training_hides_no_hang_unless_it_may_compute_for_it():
    assert hangs(LOCK, 18.0, in_thread=True, main_cpu=0.3)
    assert not hangs(LOCK, 18.0, in_thread=True, main_cpu=0.9)
    assert hangs(ANSWERS, 70.0, in_thread=True, main_cpu=0.9)
    assert not hangs(LOCK, 18.0, in_thread=True, cpu=0.2, main_cpu=0.3)
    assert not hangs(LOCK, 18.0, main_cpu=0.3)
