"""The pace of a loop: with gaps it is counted exactly as without."""

import random
import statistics
import threading
import time
import types

import pytest

from tuimon.agent import install, pace, runtime
from tuimon.agent.pace import Pace
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.steps import BARE_UPDATES
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

pytest.importorskip("torch")
import torch
from torch import autograd
from torch.utils.data import DataLoader

from tests.agent.batches import Batches
from tests.agent.loop_shapes import SHAPES, Loop, gaps_always, ranges_in_every_step, two_loaders
from tuimon.agent import api, ranges


@pytest.fixture
def counted(hooked, monkeypatch):
    """Runs a shape under our hooks; gives the sums of its Steps records."""
    api.connect(hooked, ranges)
    monkeypatch.setattr(hooked, "facts_due", False)

    def run(shape):
        reader = RingReader(hooked.writer().path)
        reader.read()  # what was before
        follower = RingFollower(reader, 1000.0, time.monotonic_ns())
        shape(Loop())
        hooked.end_gap()
        hooked.writer().flush()
        records = [record for record in follower.last(time.monotonic_ns()) if isinstance(record, Steps)]
        reader.close()
        return {
            "steps": sum(record.count for record in records),
            "backwards": sum(record.backwards for record in records),
            "updates": sum(record.updates for record in records),
            "evaluated": sum(record.eval_count for record in records),
            "dropped": sum(record.dropped for record in records),
        }, sum(record.count if record.timed is None else record.timed for record in records)

    return run


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_counts_with_gaps_and_without(counted, monkeypatch, shape):
    gaps_always(monkeypatch, 0)
    plain, timed = counted(shape)
    assert plain["steps"] == SHAPES[shape]
    assert timed >= plain["steps"] - 1  # the first step without a DataLoader is of unknown length
    for steps in (7, 30):
        gaps_always(monkeypatch, steps)
        found, timed = counted(shape)
        assert found == plain
        if shape not in (two_loaders, ranges_in_every_step):  # these are timed throughout
            assert timed < 0.95 * found["steps"], steps
        assert timed > 0


def gap_now(hooked, monkeypatch, steps=10, pause_ns=10**15):
    """A loop in a gap that has just begun."""
    gaps_always(monkeypatch, steps)
    monkeypatch.setattr(pace, "PAUSE_NS", pause_ns)
    monkeypatch.setattr(hooked, "facts_due", False)
    loop = Loop()
    while not pace.pace.counting:
        loop.step()
    return loop


def markers_of(hooked, run):
    """What is written in the ring while ``run`` runs."""
    hooked.writer().flush()
    reader = RingReader(hooked.writer().path)
    reader.read()
    run()
    hooked.writer().flush()
    found = [marker for marker in reader.read() if marker.kind not in (layout.GC_PAUSE, layout.BATCH)]
    reader.close()
    return found


def kinds_of(hooked, run):
    return [marker.kind for marker in markers_of(hooked, run)]


STEP = [layout.BACKWARD_BEGIN, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END]


def test_spells_and_gaps_take_turns(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 10)
    found = markers_of(hooked, lambda: [loop.step() for _ in range(9 + 5 + 9)])
    assert [marker.kind for marker in found] == [layout.GAP_END, *STEP * 5, layout.GAP_BEGIN]
    assert (layout.unpack_gap(found[0].value), found[0].flag) == ((0, 10, 10, 0), layout.BACKWARD_BEGIN)
    assert (found[-1].value, found[-1].flag) == (layout.BACKWARD_BEGIN, 0)


def test_the_end_of_an_epoch_ends_a_gap(hooked, monkeypatch):
    gaps_always(monkeypatch, 10**6)
    monkeypatch.setattr(hooked, "facts_due", False)
    loop = Loop()

    def epoch():
        for batch in DataLoader(Batches(40)):
            loop.step(batch)

    *_, begin, end, fetched, exhausted = markers_of(hooked, epoch)
    assert (begin.kind, begin.value) == (layout.GAP_BEGIN, layout.FETCH_BEGIN)
    passed = layout.unpack_gap(end.value)
    assert passed.fetches == passed.backwards == passed.updates == passed.steps > 20
    assert end.flag == layout.GAP_AFTER_BACKWARD  # the fetch has begun, and lasts
    assert (fetched.kind, fetched.flag) == (layout.FETCH_BEGIN, layout.FETCHED_IN_GAP)
    assert (exhausted.kind, exhausted.flag) == (layout.FETCH_END, layout.EXHAUSTED)


def test_a_gap_that_was_cut_short_goes_on_after_one_boundary(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 30)
    for _ in range(10):
        loop.step()
    kinds = kinds_of(hooked, lambda: [hooked.emit(layout.LOOP_LEFT), loop.step(), loop.step()])
    assert kinds == [layout.GAP_END, layout.LOOP_LEFT, layout.GAP_BEGIN]
    assert pace.pace.left == 28  # of 30, two have passed


@pytest.fixture
def clock(monkeypatch):
    """The clock that the pace reads, which a test puts forward."""
    clock = types.SimpleNamespace(ahead_ns=0)
    monkeypatch.setattr(pace, "monotonic_ns", lambda: time.monotonic_ns() + clock.ahead_ns)
    return clock


def test_a_gap_takes_no_longer_than_planned_where_steps_become_slow(clock, hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 10**6)
    clock.ahead_ns = 10**18
    kinds = kinds_of(hooked, lambda: [loop.step() for _ in range(pace.LOOK_UPDATES + 1)])
    assert kinds == [layout.GAP_PAUSE, layout.GAP_END, *STEP * 2]


PAUSE_NS = 10**12


@pytest.mark.parametrize("since_ns", [PAUSE_NS // 2, 2 * PAUSE_NS, 10**15])
def test_a_long_step_of_a_gap_has_a_marker(clock, hooked, monkeypatch, since_ns):
    loop = gap_now(hooked, monkeypatch, 1000, pause_ns=PAUSE_NS)
    loop.step()
    clock.ahead_ns = since_ns
    found = markers_of(hooked, lambda: [loop.step() for _ in range(20)])
    assert [marker.kind for marker in found] == ([layout.GAP_PAUSE] if since_ns > PAUSE_NS else [])
    assert all(0 <= marker.value - since_ns < PAUSE_NS for marker in found)


@pytest.mark.parametrize("since_ns", [0, PAUSE_NS // 2, 2 * PAUSE_NS, 10**15])
def test_a_gap_ends_with_its_last_update_if_something_long_follows(clock, hooked, monkeypatch, since_ns):
    loop = gap_now(hooked, monkeypatch, 1000, pause_ns=PAUSE_NS)
    for _ in range(3):
        loop.step()
    updated_ns = time.monotonic_ns()
    clock.ahead_ns = since_ns
    end, left = markers_of(hooked, lambda: hooked.emit(layout.LOOP_LEFT))
    assert (end.kind, end.flag, left.kind) == (layout.GAP_END, layout.GAP_AFTER_UPDATE, layout.LOOP_LEFT)
    expected_ns = updated_ns + (since_ns if since_ns <= PAUSE_NS else 0)
    assert abs(end.time_ns - expected_ns) < PAUSE_NS // 2


def test_a_gap_that_ends_with_a_boundary_ends_there_and_its_last_step_may_be_a_long_one(clock, hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 10, pause_ns=PAUSE_NS)
    while pace.pace.going_on:
        loop.step()
    clock.ahead_ns = 10**15
    pause, end, *timed = markers_of(hooked, loop.step)
    assert pause.kind == layout.GAP_PAUSE and pause.value >= 10**15
    assert (end.kind, end.flag) == (layout.GAP_END, layout.BACKWARD_BEGIN) and end.time_ns > 10**15
    assert [marker.kind for marker in timed] == STEP


def test_sleep_after_the_loop_is_in_none_of_its_steps(hooked, monkeypatch):
    begin_ns = time.monotonic_ns()
    reader = RingReader(hooked.writer().path)
    reader.read()
    follower = RingFollower(reader, 1000.0, begin_ns)
    gaps_always(monkeypatch, 1000)
    monkeypatch.setattr(pace, "PAUSE_NS", 5_000_000)
    monkeypatch.setattr(hooked, "facts_due", False)
    loop, made = Loop(), 0
    while made < 20 or not pace.pace.counting:
        loop.step()
        made += 1
    ended_ns = time.monotonic_ns()
    time.sleep(2 * pace.pace.pause_ns() / 1e9)
    hooked.end_gap()
    hooked.writer().flush()
    (record,) = (each for each in follower.last(time.monotonic_ns()) if isinstance(each, Steps))
    reader.close()
    assert (record.count, record.updates) == (made, made)
    assert record.total_ns <= ended_ns - begin_ns


def test_a_loop_that_fetches_no_more_ends_its_gap(hooked, monkeypatch):
    gaps_always(monkeypatch, 50)
    monkeypatch.setattr(hooked, "facts_due", False)
    loop, batches = Loop(), iter(DataLoader(Batches(1000)))
    while not pace.pace.counting:
        loop.step(next(batches))
    found = markers_of(hooked, lambda: [loop.step() for _ in range(200)])
    end = next(marker for marker in found if marker.kind == layout.GAP_END)
    made = layout.unpack_gap(end.value).updates
    assert 50 < made <= 51 + BARE_UPDATES
    assert sum(marker.kind == layout.OPTIMIZER_END for marker in found) > 0


def evaluate(loop, batches):
    for batch in DataLoader(Batches(batches)):
        (loop.weight * batch).sum()


def test_an_evaluation_has_no_gap(hooked, monkeypatch):
    gap_now(hooked, monkeypatch)
    markers = markers_of(hooked, lambda: evaluate(Loop(), 100))
    assert [marker.kind for marker in markers][:1] == [layout.GAP_END]
    assert sum(marker.kind == layout.FETCH_END for marker in markers) == 101  # with the one that finds the end


def test_another_thread_that_trains_is_timed_meanwhile(hooked, monkeypatch):
    loop, other = gap_now(hooked, monkeypatch, 1000), Loop()

    def beside():
        loop.step()
        thread = threading.Thread(target=lambda: [other.step() for _ in range(2)])
        thread.start()
        thread.join()
        loop.step()

    assert kinds_of(hooked, beside) == STEP * 2 and pace.pace.counting


def test_another_threads_optimizer_is_no_part_of_a_gap(counted, monkeypatch):
    """Its step begins before the gap and ends within it."""
    gaps_always(monkeypatch, 30)

    def shape(loop):
        other, stepping, finish = Loop(), threading.Event(), threading.Event()

        def hold(*_):
            stepping.set()
            assert finish.wait(60)

        def step_slowly():
            other.weight.grad = torch.zeros(3)
            other.optimizer.register_step_pre_hook(hold)
            other.optimizer.step()

        thread = threading.Thread(target=step_slowly)
        for number in range(400):
            loop.step()
            if number == 100:
                thread.start()
                assert stepping.wait(60)
            if number > 150 and pace.pace.counting and not finish.is_set():
                finish.set()
                thread.join(60)
        assert finish.is_set()

    found, _ = counted(shape)
    assert (found["steps"], found["updates"], found["backwards"]) == (400, 400, 400)


def test_batches_evaluated_between_bare_steps_have_no_backwards(counted, monkeypatch):
    gaps_always(monkeypatch, 20)

    def shape(loop):
        for batches in (1, 2, 3, 4, 5, 6):
            for _ in range(150):
                loop.step()
            evaluate(loop, batches)

    found, timed = counted(shape)
    assert (found["steps"], found["updates"], found["backwards"]) == (900, 900, 900) and timed < 800


def test_a_wrapper_around_our_hook_may_call_it_in_a_gap(counted, monkeypatch):
    gaps_always(monkeypatch, 30)

    def shape(loop):
        ours = autograd._engine_run_backward

        def theirs(*args, **kwargs):
            return ours(*args, **kwargs)

        with monkeypatch.context() as patched:
            for module in (autograd, autograd.graph):
                patched.setattr(module, "_engine_run_backward", theirs)
            for _ in range(300):
                loop.step()

    found, timed = counted(shape)
    assert (found["steps"], found["updates"], found["backwards"]) == (300, 300, 300) and timed < 200


def test_a_thread_that_ends_in_a_gap_records_what_has_passed(counted, monkeypatch):
    """At once: what follows it, in whichever thread, belongs to no step of its own."""
    gaps_always(monkeypatch, 30)
    at_end = []

    def train(loop):
        made = 200
        for _ in range(made):
            loop.step()
        while not pace.pace.counting:
            loop.step()
            made += 1
        at_end.append(made)

    def shape(loop):
        for _ in range(2):  # the second has the number of the first, most often
            thread = threading.Thread(target=train, args=(loop,))
            thread.start()
            thread.join()
            assert not pace.pace.counting

    found, timed = counted(shape)
    assert found["steps"] == found["updates"] in at_end
    assert timed < found["steps"]


def test_a_backward_that_fails_in_a_gap_shows_no_frame_of_ours(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 1000)
    with pytest.raises(RuntimeError) as failed:
        loop.weight.detach().sum().backward()
    names = [entry.name for entry in failed.traceback]
    assert pace.pace.counting and "_engine_run_backward" in names and "tuimon_backward" not in names


def test_hooks_that_are_removed_in_a_gap_stay_removed(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 1000)
    writer, found = hooked.writer(), []
    monkeypatch.setattr(writer, "emit_of", lambda time_ns, thread, kind, value, flag: found.append(kind))
    install.uninstall()
    loop.step()
    assert found == [layout.GAP_END] and not pace.pace.counting


class FakeWriter:
    """A ring's writer that counts what it writes."""

    def __init__(self, random):
        self.count = 0
        self.drawn = random.random

    def emit(self, kind, value=0, flag=0):
        self.count += 1

    def emit_of(self, time_ns, thread, kind, value, flag):
        self.count += 1

    def written(self):
        return self.count

    def flush(self):
        pass

    hold = flush


class Simulated:
    """A loop with a DataLoader on a clock of its own: which of its steps are timed."""

    def __init__(self, monkeypatch, step_ns):
        self.now_ns, self.step_ns = 10**9, step_ns
        self.writer = FakeWriter(random.Random(7))
        self.timed = []
        monkeypatch.setattr(pace, "monotonic_ns", lambda: self.now_ns)
        for name, value in (("writer", lambda: self.writer), ("emit", self.writer.emit), ("facts_due", False)):
            monkeypatch.setattr(runtime, name, value)
        self.pace = Pace()
        assert self.pace.claim()

    def step(self):
        self.writer.count += 2 * (not self.pace.passes_fetch(7))
        is_timed = not self.pace.passes_backward()
        self.writer.count += 4 * is_timed
        self.now_ns += self.step_ns
        self.pace.passes_optimizer()
        self.timed.append(is_timed)


@pytest.mark.parametrize("step_us", [50, 300, 1000, 5000, 9000])
def test_timing_takes_a_fixed_share_of_the_time(monkeypatch, step_us):
    loop = Simulated(monkeypatch, step_us * 1000)
    for _ in range(30_000_000 // step_us):
        loop.step()
    share = loop.writer.count * pace.MARKER_NS / (len(loop.timed) * loop.step_ns)
    assert 0.6 / pace.TIME_PARTS < share < 1.05 / pace.TIME_PARTS


def test_long_steps_are_all_timed(monkeypatch):
    loop = Simulated(monkeypatch, 40_000_000)
    for _ in range(5000):
        loop.step()
    assert all(loop.timed)


@pytest.mark.parametrize("period", [2, 10, 100, 333])
def test_what_comes_every_so_many_steps_is_timed_as_often_as_all_else(monkeypatch, period):
    loop = Simulated(monkeypatch, 500_000)
    for _ in range(4000 * max(100, period)):
        loop.step()
    usual, periodic = statistics.fmean(loop.timed), statistics.fmean(loop.timed[::period])
    assert periodic == pytest.approx(usual, rel=0.25)


def test_epochs_as_long_as_along_spell_have_their_share_of_gaps(monkeypatch):
    """Each ends the gap of its own time: a spell of the same length would have all of them begin right before that."""
    loop = Simulated(monkeypatch, 500_000)
    for _ in range(400):
        for _ in range(pace.FIRST):
            loop.step()
        loop.pace.end()
    assert statistics.fmean(loop.timed) < 0.6


def test_gaps_are_not_of_one_length_and_bounded():
    found = {pace.updates_to_pay(162, 400_000, drawn / 100) for drawn in range(101)}
    assert (min(found), max(found)) == (81, 243) and len(found) > 90
    assert pace.updates_to_pay(10**9, 400_000, 1.0) <= pace.LONGEST_NS // 400_000
    assert pace.updates_to_pay(10**9, 0, 1.0) < 1 << 17
    assert pace.updates_to_pay(0, 400_000, 1.0) == 0


def test_a_forked_child_forgets_its_parents_gap(hooked, monkeypatch):
    gap_now(hooked, monkeypatch, 1000)
    assert markers_of(hooked, hooked.forget_loop) == []
    assert not pace.pace.counting and not pace.pace.thread
