"""The pace of a loop: with gaps it is counted exactly as without."""

import random
import statistics
import threading
import time

import pytest

from tuimon.agent import install, pace, runtime
from tuimon.agent.pace import Pace
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import RingReader
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

pytest.importorskip("torch")
import torch
from torch import autograd
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader

from tests.agent.batches import Batches
from tests.agent.loop_shapes import SHAPES, Loop, failing_now_and_then, gaps_always, ranges_in_every_step, two_loaders
from tuimon.agent import api
from tuimon.agent.ranges import range_markers


@pytest.fixture
def counted(hooked, monkeypatch):
    """Runs a shape under our hooks; gives the sums of its Steps records."""
    api.connect(hooked, range_markers)
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
        if shape is failing_now_and_then:  # the backward has no hook in a gap
            found["backwards"] = plain["backwards"]
        assert found == plain
        if shape not in (two_loaders, ranges_in_every_step):  # these are timed throughout
            assert timed < 0.95 * found["steps"], steps
        assert timed > 0


def gap_now(hooked, monkeypatch, steps=10):
    """A loop in the middle of a gap."""
    gaps_always(monkeypatch, steps)
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
    assert end.flag == layout.GAP_IN_STEP  # the fetch has begun, and lasts
    assert (fetched.kind, fetched.flag) == (layout.FETCH_BEGIN, layout.FETCHED_IN_GAP)
    assert (exhausted.kind, exhausted.flag) == (layout.FETCH_END, layout.EXHAUSTED)


def test_a_gap_that_was_cut_short_goes_on_after_one_boundary(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 30)
    for _ in range(10):
        loop.step()
    kinds = kinds_of(hooked, lambda: [hooked.emit(layout.LOOP_LEFT), loop.step(), loop.step()])
    assert kinds == [layout.GAP_END, layout.LOOP_LEFT, layout.GAP_BEGIN]
    assert 0 < pace.pace.left < 20


def test_a_gap_takes_no_longer_than_planned_where_steps_become_slow(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 10**6)
    loop.step()
    monkeypatch.setattr(pace, "monotonic_ns", lambda: time.monotonic_ns() + 10**18)
    kinds = kinds_of(hooked, lambda: [loop.step() for _ in range(pace.LOOK_STEPS + 1)])
    assert kinds[:2] == [layout.GAP_PAUSE, layout.GAP_END]
    assert kinds[2:] and kinds[2:] == STEP * (len(kinds[2:]) // 4)


def test_a_long_step_of_a_gap_has_a_marker(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 1000)
    loop.step()
    monkeypatch.setattr(pace.pace, "mean_ns", 0)
    paused = pace.pace.latest_ns + 10**16
    pace.pace.overdue_ns = 2 * paused
    monkeypatch.setattr(pace, "monotonic_ns", lambda: paused)
    (pause,) = markers_of(hooked, lambda: [loop.step() for _ in range(3 * pace.LOOK_STEPS)])
    assert (pause.kind, pause.value) == (layout.GAP_PAUSE, 10**16)


MEAN_NS, PAUSE_NS = 1000, 10**9


def look_and_go_on(monkeypatch, step, since_ns):
    """Three usual steps of a gap after the clock was read, ``since_ns`` ago since the third; returns when that was."""
    monkeypatch.setattr(pace.pace, "mean_ns", MEAN_NS)
    monkeypatch.setattr(pace.pace, "pause_ns", PAUSE_NS)
    while pace.pace.since_look() != 3:
        step()
    third_ns = pace.pace.latest_ns + 3 * MEAN_NS
    monkeypatch.setattr(pace, "monotonic_ns", lambda: third_ns + since_ns)
    return third_ns


@pytest.mark.parametrize("since_ns", [0, PAUSE_NS, PAUSE_NS + 1, 10**12])
def test_a_gap_ends_with_its_last_step_if_something_long_follows(hooked, monkeypatch, since_ns):
    loop = gap_now(hooked, monkeypatch, 1000)
    third_ns = look_and_go_on(monkeypatch, loop.step, since_ns)
    end, left = markers_of(hooked, lambda: hooked.emit(layout.LOOP_LEFT))
    assert (end.kind, end.flag, left.kind) == (layout.GAP_END, layout.GAP_AFTER_UPDATE, layout.LOOP_LEFT)
    assert end.time_ns == third_ns + (since_ns if since_ns <= PAUSE_NS else 0)


def test_a_gap_of_an_evaluation_ends_with_its_last_batch_if_something_long_follows(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch)
    hooked.end_gap()
    fetches = iter(DataLoader(Batches(1000)))
    monkeypatch.setattr(pace, "steps_to_pay", lambda debt_ns, each_ns, drawn: 10**6)
    while not pace.pace.is_open:
        next(fetches)
    third_ns = look_and_go_on(monkeypatch, lambda: next(fetches), 10**12)
    assert markers_of(hooked, loop.backward)[0].time_ns == third_ns


def test_a_gap_that_ends_with_a_boundary_ends_there_and_its_last_step_may_be_a_long_one(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch, 10)
    while not pace.pace.is_due:
        loop.step()
    monkeypatch.setattr(pace.pace, "pause_ns", PAUSE_NS)
    begin_ns = pace.pace.latest_ns
    monkeypatch.setattr(pace, "monotonic_ns", lambda: begin_ns + 10**12)
    pause, end, *timed = markers_of(hooked, loop.step)
    assert (pause.kind, pause.value) == (layout.GAP_PAUSE, 10**12)
    assert (end.kind, end.flag, end.time_ns) == (layout.GAP_END, layout.BACKWARD_BEGIN, begin_ns + 10**12)
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
    while not pace.pace.counting or pace.pace.since_look() != 3:
        loop.step()
        made += 1
    ended_ns = time.monotonic_ns()
    time.sleep((2 * pace.pace.pause_ns + 8 * pace.pace.mean_ns) / 1e9)
    hooked.end_gap()
    hooked.writer().flush()
    (record,) = (each for each in follower.last(time.monotonic_ns()) if isinstance(each, Steps))
    reader.close()
    assert (record.count, record.updates) == (made, made)
    assert record.total_ns <= ended_ns - begin_ns + 3 * pace.pace.mean_ns


def test_a_loop_that_fetches_no_more_ends_its_gap(hooked, monkeypatch):
    gaps_always(monkeypatch, 50)
    monkeypatch.setattr(hooked, "facts_due", False)
    loop, batches = Loop(), iter(DataLoader(Batches(1000)))
    while not pace.pace.counting:
        loop.step(next(batches))
    monkeypatch.setattr(pace, "monotonic_ns", lambda: time.monotonic_ns() + 10**18)
    found = markers_of(hooked, lambda: [loop.step() for _ in range(70)])
    end = next(marker for marker in found if marker.kind == layout.GAP_END)
    made = layout.unpack_gap(end.value).updates
    assert end.flag == layout.GAP_AFTER_UPDATE and 1 < made <= 50 + 2 * pace.LOOK_STEPS
    assert sum(marker.kind == layout.OPTIMIZER_END for marker in found) == 70 + 1 - made or pace.pace.counting


def evaluate(loop, batches):
    for batch in DataLoader(Batches(batches)):
        (loop.weight * batch).sum()


def test_the_fetches_of_a_long_evaluation_are_counted(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch)
    hooked.end_gap()
    markers = markers_of(hooked, lambda: evaluate(loop, 100))
    fetched = sum(marker.kind == layout.FETCH_END for marker in markers)
    passed = [layout.unpack_gap(marker.value) for marker in markers if marker.kind == layout.GAP_END]
    assert fetched + sum(gap.fetches for gap in passed) == 101  # with the one that finds the end
    assert fetched < 60 and all(gap[1:] == (0, 0, 0) for gap in passed)
    assert all(marker.flag == layout.EVALUATED for marker in markers if marker.kind == layout.GAP_BEGIN)


def test_another_thread_that_trains_ends_the_gap_of_this_one(hooked, monkeypatch):
    """Its first backward has no marker."""
    loop, other = gap_now(hooked, monkeypatch, 1000), Loop()

    def beside():
        loop.step()
        thread = threading.Thread(target=lambda: [other.step() for _ in range(2)])
        thread.start()
        thread.join()
        loop.step()

    markers = markers_of(hooked, beside)
    assert [marker.kind for marker in markers] == [*STEP[2:], *STEP, layout.GAP_END, *STEP]
    assert markers[6].flag == layout.BACKWARD_BEGIN or markers[6].flag == layout.GAP_AFTER_UPDATE
    assert not pace.pace.counting


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


def is_hooked():
    return autograd._engine_run_backward.__code__.co_name == "tuimon_backward"


def step_hooks():
    return [*torch_optimizer._global_optimizer_pre_hooks.items(), *torch_optimizer._global_optimizer_post_hooks.items()]


def test_a_gap_takes_the_hook_off_the_backward_and_leaves_torchs_hooks(hooked, monkeypatch):
    """A compiled optimizer is compiled anew when one of those is exchanged."""
    before = step_hooks()
    loop = gap_now(hooked, monkeypatch, 20)
    while pace.pace.counting:
        assert step_hooks() == before and (not is_hooked() or pace.pace.is_due)
        loop.step()
    assert step_hooks() == before and is_hooked()


def test_a_backward_in_the_gap_of_an_evaluation_is_timed(hooked, monkeypatch):
    loop = gap_now(hooked, monkeypatch)
    hooked.end_gap()
    fetches = iter(DataLoader(Batches(100)))
    while not pace.pace.is_open:
        next(fetches)
    kinds = kinds_of(hooked, lambda: [next(fetches), loop.backward()])
    assert kinds == [layout.GAP_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END]


def test_another_binding_of_the_backward_outlives_a_gap(hooked, monkeypatch):
    """Whoever binds it in a gap found the original, and puts that back; the next check mends it."""
    loop = gap_now(hooked, monkeypatch)
    original = autograd._engine_run_backward

    def theirs(*args, **kwargs):
        return original(*args, **kwargs)

    autograd._engine_run_backward = autograd.graph._engine_run_backward = theirs
    hooked.end_gap()
    assert autograd._engine_run_backward is autograd.graph._engine_run_backward is theirs
    autograd._engine_run_backward = autograd.graph._engine_run_backward = original
    monkeypatch.setattr(pace.pace, "checks_due", 2)
    loop.step()
    assert not is_hooked()
    loop.step()
    assert is_hooked()


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


def test_updates_by_changing_optimizers_have_no_gap(hooked, monkeypatch):
    """How many optimizer steps make an update is not known then."""
    gaps_always(monkeypatch, 30)
    monkeypatch.setattr(hooked, "facts_due", False)
    loop = Loop()
    other = loop.sgd()
    for number in range(200):
        loop.step()
        if number % 2:
            other.step()
        assert not pace.pace.is_open


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
    hooked.forget_loop()
    assert not is_hooked() and not step_hooks()


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
        if self.pace.usual_iterator == 7 and self.pace.stepped:  # as the hook does it
            self.pace.stepped = False
            self.pace.steps += 1
        elif not self.pace.begin_fetch(7):
            self.writer.count += 2
        is_timed = not self.pace.begin_backward()
        self.writer.count += 4 * is_timed
        self.now_ns += self.step_ns
        self.pace.end_optimizer_step() if is_timed else self.pace.count_optimizer_step()
        self.timed.append(is_timed)


@pytest.mark.parametrize("step_us", [50, 300, 1000, 5000, 9000])
def test_timing_takes_a_fixed_share_of_the_time(monkeypatch, step_us):
    loop = Simulated(monkeypatch, step_us * 1000)
    for _ in range(30_000_000 // step_us):
        loop.step()
    share = loop.writer.count * pace.MARKER_NS / (len(loop.timed) * loop.step_ns)
    assert 0.6 / pace.TIME_PARTS < share < 1.05 / pace.TIME_PARTS


def test_long_steps_are_all_timed(monkeypatch):
    loop = Simulated(monkeypatch, 20_000_000)
    for _ in range(5000):
        loop.step()
    assert all(loop.timed)


@pytest.mark.parametrize("period", [2, 10, 100, 333])
def test_what_comes_every_so_many_steps_is_timed_as_often_as_all_else(monkeypatch, period):
    loop = Simulated(monkeypatch, 500_000)
    for _ in range(400_000):
        loop.step()
    usual, periodic = statistics.fmean(loop.timed), statistics.fmean(loop.timed[::period])
    assert periodic == pytest.approx(usual, rel=0.25)


def test_epochs_as_long_as_a_long_spell_have_their_share_of_gaps(monkeypatch):
    """Each ends the gap of its own time: a spell of the same length would have all of them begin right before that."""
    loop = Simulated(monkeypatch, 500_000)
    for _ in range(400):
        for _ in range(pace.FIRST):
            loop.step()
        if loop.pace.is_open:
            loop.pace.end()
    assert statistics.fmean(loop.timed) < 0.6


def test_gaps_are_not_of_one_length_and_bounded():
    found = {pace.steps_to_pay(100_000, 400_000, drawn / 100) for drawn in range(101)}
    assert (min(found), max(found)) == (50, 150) and len(found) > 90
    assert pace.steps_to_pay(10**9, 400_000, 1.0) <= pace.LONGEST_NS // 400_000
    assert pace.steps_to_pay(10**9, 0, 1.0) <= pace.MOST_STEPS
    assert pace.steps_to_pay(-100, 400_000, 1.0) <= 0


def test_a_forked_child_forgets_its_parents_gap(hooked, monkeypatch):
    gap_now(hooked, monkeypatch, 1000)
    assert markers_of(hooked, hooked.forget_loop) == []
    assert not pace.pace.counting and not pace.pace.thread
