"""The pace of a loop: with gaps it is counted exactly as without."""

import itertools
import os
import random
import statistics
import threading
import time
import types

import pytest

from tuimon.agent import install, pace, runtime
from tuimon.agent.pace import Pace
from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import BARE_UPDATES
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.steps import TokenBucket
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

pytest.importorskip("torch")
from torch.utils.data import DataLoader

from tests.agent.batches import Batches
from tests.agent.loop_shapes import SHAPES, Loop, evaluate, gaps_always, ranges_in_every_step, two_loaders
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


def gap_now(hooked, monkeypatch, steps=10):
    """A loop in a gap that has just begun."""
    gaps_always(monkeypatch, steps)
    monkeypatch.setattr(hooked, "facts_due", False)
    loop = Loop()
    while not pace.pace.counting_thread:
        loop.step()
    return loop


def markers_of(hooked, run):
    """What is written in the ring while ``run`` runs."""
    hooked.writer().flush()
    reader = RingReader(hooked.writer().path)
    reader.read()
    run()
    hooked.writer().flush()
    found = [marker for marker in reader.read() if marker.kind not in (layout.GC_PAUSE, layout.TENSORS, layout.BATCH)]
    reader.close()
    return found


def kinds_of(hooked, run):
    return [marker.kind for marker in markers_of(hooked, run)]


STEP = [layout.BACKWARD_BEGIN, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END]


def test_spells_and_gaps_take_turns(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 10)
    end, *timed, begin = markers_of(hooked, lambda: [loop.step() for _ in range(9 + pace.CLOCK_UPDATES + 5)])[:22]
    assert [marker.kind for marker in timed] == STEP * 5
    passed = layout.unpack_gap(end.value)
    assert 10 <= passed.updates < 10 + pace.CLOCK_UPDATES and passed == (0, passed.updates, passed.updates, 0)
    assert (end.kind, end.flag) == (layout.GAP_END, layout.BACKWARD_BEGIN)
    assert (begin.kind, begin.value, begin.flag) == (layout.GAP_BEGIN, layout.BACKWARD_BEGIN, 0)


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


@pytest.fixture
def clock(monkeypatch):
    """The clock that the pace reads, which a test puts forward."""
    clock = types.SimpleNamespace(ahead_ns=0)
    monkeypatch.setattr(pace, "monotonic_ns", lambda: time.monotonic_ns() + clock.ahead_ns)
    return clock


def test_a_gap_takes_no_longer_than_planned_where_steps_become_slow(clock, hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 10**6)
    clock.ahead_ns = 10**18
    first, *timed = kinds_of(hooked, lambda: [loop.step() for _ in range(pace.CLOCK_UPDATES + 1)])
    assert first == layout.GAP_END and timed[:4] == STEP


def latest_end_ns():
    """When a gap ends at the latest that something in a step cuts short, by what the pace has seen until now."""
    return pace.pace.clock_read_ns + 2 * pace.CLOCK_UPDATES * pace.pace.bucket.mean_ns


@pytest.mark.parametrize("since_ns", [0, 10**15])
def test_a_gap_ends_soon_after_its_last_update_if_something_long_follows(clock, hooked, monkeypatch, since_ns):
    loop = gap_now(hooked, monkeypatch, 1000)
    for _ in range(3):
        loop.step()
    clock.ahead_ns = since_ns
    end, left = markers_of(hooked, lambda: hooked.emit(layout.LOOP_LEFT))
    assert (end.kind, end.flag, left.kind) == (layout.GAP_END, layout.GAP_AFTER_UPDATE, layout.LOOP_LEFT)
    assert end.time_ns == latest_end_ns() if since_ns else end.time_ns <= min(left.time_ns, latest_end_ns())


def test_a_gap_that_ends_with_a_boundary_ends_there(clock, hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 10)
    while pace.pace.open_gap_thread:
        loop.step()
    clock.ahead_ns = 10**15
    end, *timed = markers_of(hooked, loop.step)
    assert (end.kind, end.flag) == (layout.GAP_END, layout.BACKWARD_BEGIN) and end.time_ns > 10**15
    assert [marker.kind for marker in timed] == STEP


def test_a_loop_that_fetches_no_more_ends_its_gap(hooked, monkeypatch):
    gaps_always(monkeypatch, 50)
    monkeypatch.setattr(hooked, "facts_due", False)
    loop, batches = Loop(), iter(DataLoader(Batches(1000)))
    while not pace.pace.counting_thread:
        loop.step(next(batches))
    found = markers_of(hooked, lambda: [loop.step() for _ in range(200)])
    end = next(marker for marker in found if marker.kind == layout.GAP_END)
    made = layout.unpack_gap(end.value).updates
    assert 50 < made <= 51 + pace.CLOCK_UPDATES + BARE_UPDATES
    assert sum(marker.kind == layout.OPTIMIZER_END for marker in found) > 0


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

    assert kinds_of(hooked, beside) == STEP * 2 and pace.pace.counting_thread


def test_what_a_thread_has_counted_is_marked_when_another_one_trains(hooked, monkeypatch):
    other = []

    def train():
        loop = gap_now(hooked, monkeypatch, 1000)
        for _ in range(20):
            loop.step()
        other.append(threading.get_native_id())

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert pace.pace.counting_thread
    while os.path.exists(f"/proc/self/task/{other[0]}"):
        time.sleep(0.001)
    end, *_ = [each for each in markers_of(hooked, Loop().step) if each.kind not in STEP]
    assert (end.kind, end.tid, layout.unpack_gap(end.value).updates) == (layout.GAP_END, other[0], 1 + 20)
    assert not pace.pace.counting_thread and pace.pace.thread == threading.get_ident()


def test_a_backward_that_fails_in_a_gap_shows_no_frame_of_ours(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 1000)
    with pytest.raises(RuntimeError) as failed:
        loop.weight.detach().sum().backward()
    names = [entry.name for entry in failed.traceback]
    assert pace.pace.counting_thread and "_engine_run_backward" in names and "tuimon_backward" not in names


def test_hooks_that_are_removed_in_a_gap_stay_removed(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 1000)
    writer, found = hooked.writer(), []
    monkeypatch.setattr(writer, "emit_of", lambda time_ns, thread, kind, value, flag: found.append(kind))
    install.uninstall()
    loop.step()
    assert found == [layout.GAP_END] and not pace.pace.counting_thread


class FakeWriter:
    """A ring's writer that counts what it writes."""

    def __init__(self, random):
        self.count = 0
        self.random = random.random

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
        self.pace.end_optimizer_step()
        if self.pace.open_gap_thread and self.pace.updates % pace.CLOCK_UPDATES == 0:
            self.pace.check_length()
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


def test_gaps_are_not_of_one_length_and_bounded(monkeypatch):
    loop = Simulated(monkeypatch, 500_000)
    for _ in range(100_000):
        loop.step()
    lengths = [len(list(group)) for is_timed, group in itertools.groupby(loop.timed) if not is_timed]
    assert len(set(lengths)) > 50 and 2 * min(lengths) < max(lengths) < pace.LONGEST_NS // loop.step_ns


def test_more_is_not_owed_than_a_gap_can_pay():
    bucket = TokenBucket(pace.TIME_PARTS, 8, pace.LONGEST_NS // pace.TIME_PARTS)
    for number in range(3):
        assert bucket.steps_owed() == 0 or number == 2  # the mean of the steps is not known before
        bucket.spend(10**12)
        bucket.pass_steps(1000 * number, 400_000_000 * number)
    assert 0.99 * pace.LONGEST_NS < bucket.steps_owed() * bucket.mean_ns <= pace.LONGEST_NS


def test_a_forked_child_forgets_its_parents_gap(hooked, monkeypatch):
    gap_now(hooked, monkeypatch, 1000)
    assert markers_of(hooked, pace.pace.leave) == []
    assert not pace.pace.counting_thread and not pace.pace.thread
