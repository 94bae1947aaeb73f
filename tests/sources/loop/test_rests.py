"""What the monitor makes of a rest: the count is exact, shares are unbiased, the wall time is the rest's own."""

import random
from itertools import pairwise

import pytest

from tests.sources.markers.literal_ring import columns_from
from tests.state_size import size_of
from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import Marker
from tuimon.sources.loop.regular import RegularSteps
from tuimon.sources.loop.rests import RestFiller
from tuimon.sources.markers.thread_loops import PassedSteps, ThreadLoop
from tuimon.sources.source_blocks import SourceBlocks

US = 1000
#: One step: kind of marker, and the time that follows it.
BATCHES = [
    (layout.FETCH_BEGIN, 30),
    (layout.FETCH_END, 60),
    (layout.BACKWARD_BEGIN, 120),
    (layout.BACKWARD_END, 15),
    (layout.OPTIMIZER_BEGIN, 40),
    (layout.OPTIMIZER_END, 25),
]
BARE = BATCHES[2:]


class Simulated:
    """A loop that trains, and the agent beside it: bursts of 8 steps, rests of random length."""

    def __init__(self, step, side_work_every, side_work_us, seed=1):
        self.random = random.Random(seed)
        self.step, self.every, self.side_us = step, side_work_every, side_work_us
        self.now_ns = 0
        self.made = 0
        self.side_ns = 0
        self.markers_at_once = 0
        self.loop = ThreadLoop(str, SourceBlocks())

    def pass_boundary(self, at):
        """Returns its marker; the time after it passes."""
        kind, us = self.step[at]
        marker = Marker(self.now_ns, kind, 0, 1, 5)
        self.now_ns += round(us * US * self.random.uniform(0.9, 1.2))
        if kind == layout.OPTIMIZER_END:
            self.made += 1
            if self.made % self.every == 0:
                self.side_ns += self.side_us * US
                self.now_ns += self.side_us * US
        return marker

    def burst(self, steps):
        for _ in range(steps):
            for at in range(len(self.step)):
                self.loop.feed_boundary(self.pass_boundary(at))

    def rest(self, steps):
        """Up to the last optimizer's end, which has a marker again."""
        for number in range(steps):
            for at in range(len(self.step)):
                marker = self.pass_boundary(at)
                if (number, at) == (steps - 1, len(self.step) - 1):
                    fetches = steps if self.step is BATCHES else 0
                    passed = layout.pack_rest(fetches, steps, steps, steps - 1)
                    told = Marker(marker.time_ns, layout.REST, len(self.step), 1, passed)
                    for fed in self.loop.feed_rest(told):
                        self.markers_at_once += fed.end - fed.begin if isinstance(fed, PassedSteps) else 0
                    self.loop.feed_boundary(marker)

    def run(self, steps):
        """The steps that end from now on."""
        self.burst(40)
        while self.made < steps:
            self.rest(self.random.randint(40, 120))
            self.burst(8)
        self.loop.machine.steps.finish()
        return self.loop.machine.steps.take_ended().steps


@pytest.mark.parametrize("step", [BATCHES, BARE])
@pytest.mark.parametrize("every", [50, 100, 128])
def test_rare_side_work_is_neither_missed_nor_counted_twice(step, every):
    simulated = Simulated(step, every, side_work_us=20_000)
    early = simulated.run(5_000)  # until a burst has seen side work, nobody knows where in a rest it is
    begun_ns, made, side_ns = simulated.now_ns, simulated.made, simulated.side_ns
    steps = simulated.run(30_000)
    assert len(early) + len(steps) == simulated.made
    total_ns = sum(each.total_ns for each in steps)
    assert total_ns == pytest.approx(simulated.now_ns - begun_ns, rel=0.001)
    timed = sum(each.timed for each in steps)
    assert 0.05 < timed / len(steps) < 0.15
    # without a DataLoader side work lies between an update and the next backward, with whatever else is there
    label = "other" if step is BATCHES else "between"
    usual_us = 25 + 15 if step is BATCHES else 25
    expected = simulated.side_ns - side_ns + usual_us * US * 1.05 * (simulated.made - made)
    found = sum(each.phases.get(label, 0) for each in steps)
    assert found == pytest.approx(expected, rel=0.03)


def test_a_usual_rest_keeps_the_shares_of_the_timed_steps():
    steps = Simulated(BATCHES, 10**9, 0).run(5_000)
    for label, us in {"data": 30, "forward": 60, "backward": 120, "optimizer": 40, "other": 40}.items():
        share = sum(each.phases[label] for each in steps) / sum(each.total_ns for each in steps)
        assert share == pytest.approx(us / 290, rel=0.02)


@pytest.mark.parametrize("step", [BATCHES, BARE])
def test_the_steps_of_a_rest_are_the_same_at_once_and_marker_by_marker(monkeypatch, step):
    at_once = Simulated(step, 100, 20_000)
    found = at_once.run(5_000)
    assert at_once.markers_at_once > 0.9 * len(step) * sum(not each.timed for each in found)
    monkeypatch.setattr(RegularSteps, "take", lambda *_: None)
    one_by_one = Simulated(step, 100, 20_000)
    assert one_by_one.run(5_000) == found
    assert one_by_one.markers_at_once == 0


def test_a_slow_step_in_a_rest_is_in_its_wall_time():
    simulated = Simulated(BATCHES, 61, 500_000)
    simulated.burst(40)
    simulated.rest(60)
    simulated.burst(2)
    simulated.loop.machine.steps.finish()
    steps = simulated.loop.machine.steps.take_ended().steps
    resting = [each for each in steps if not each.timed]
    assert len(steps) == 102 and len(resting) == 61  # one has begun before the rest
    assert sum(each.total_ns for each in resting) > 500_000 * US


@pytest.mark.parametrize("every", [10**9, 100])
def test_a_pause_in_a_rest_is_one_long_step(every):
    simulated = Simulated(BATCHES, every, 20_000)
    simulated.run(1_000)
    pause_us, simulated.every = 91_000_000, simulated.made + 30
    simulated.side_us = pause_us
    simulated.rest(60)
    simulated.burst(2)
    simulated.loop.machine.steps.finish()
    steps = simulated.loop.machine.steps.take_ended().steps
    assert sorted(each.total_ns for each in steps)[-2] < 60_000 * US
    assert max(each.total_ns for each in steps) == pytest.approx(pause_us * US, rel=0.01)


def told(fetches, backwards, begins, ends, flag=6):
    return Marker(10**9, layout.REST, flag, 1, layout.pack_rest(fetches, backwards, begins, ends))


@pytest.mark.parametrize(
    "rest", [told(0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF), told(1, 0xFFFF, 1, 1), told(9, 9, 9, 9, flag=7), told(9, 9, 9, 9, 0)]
)
def test_a_damaged_rest_is_none(rest):
    filler = RestFiller()
    for at, (kind, _) in enumerate(BATCHES):
        filler.add_marker(Marker(at, kind, 0, 1, 5))
    assert filler.fill(rest).markers() == []


def test_a_ring_found_in_mid_rest_says_nothing_of_it():
    assert RestFiller().fill(told(9, 9, 9, 9)).markers() == []


@pytest.mark.parametrize("turn", [0, 4])
def test_side_work_keeps_its_place_where_a_rest_begins_after_another_update_of_the_step(turn):
    """Of two models trained in turn; the long gap is before the fetch of a step."""
    kinds = [kind for kind, _ in BATCHES + BARE]
    optimizers = [0, 0, 0, 0, 8, 8, 0, 0, 9, 9]
    filler, now_ns = RestFiller(), 0

    def feed(places, long_us=0):
        nonlocal now_ns
        for at in places:
            now_ns += (long_us if at == 0 else 10) * US or 10 * US
            filler.add_marker(Marker(now_ns, kinds[at], 0, 1, optimizers[at]))

    period = list(range(10))
    feed(period * 8, 20_000)
    feed(period * 8)
    first = filler.fill(Marker(now_ns + 50 * US, layout.REST, 10, 1, layout.pack_rest(0, 0, 0, 0)))
    assert not first.heads
    turned = period[-turn:] + period[:-turn]
    feed(turned * 8)
    begun_ns = now_ns
    end_ns = begun_ns + (4 * 10 * 10 + 60_000) * US
    passed = filler.fill(Marker(end_ns, layout.REST, 10, 1, layout.pack_rest(4, 8, 8, 7))).markers()
    gaps = [later.time_ns - earlier.time_ns for earlier, later in pairwise(passed)]
    longest = [later for (_, later), ns in zip(pairwise(passed), gaps, strict=True) if ns > 1_000 * US]
    assert longest
    assert {marker.kind for marker in longest} == {layout.FETCH_BEGIN}


def test_of_a_slow_loop_only_the_markers_of_the_last_second_are_kept():
    filler, kinds = RestFiller(), [kind for kind, _ in BARE]
    for step in range(100):
        begin_ns = step * 100_000_000
        step_markers = [Marker(begin_ns + at, kind, layout.NO_EVENT, 1, 1) for at, kind in enumerate(kinds)]
        filler.add_markers(columns_from(step_markers), 0, len(kinds))
    assert size_of(filler) < 3_000
    rest = Marker(11_000_000_000, layout.REST, len(kinds), 1, layout.pack_rest(0, 2, 2, 2))
    assert [marker.kind for marker in filler.fill(rest).markers()] == kinds * 2


def evaluated(rest, at_once=True):
    """30 steps, 100 batches evaluated, of which 80 may ``rest``, 30 steps: what ended, how long it evaluated."""
    made = Simulated(BATCHES, 10**9, 0)
    made.burst(30)
    begun_ns = made.now_ns
    for number in range(100):
        if not rest or number < 10 or number >= 90:
            for kind in (layout.FETCH_BEGIN, layout.FETCH_END):
                made.loop.feed_boundary(Marker(made.now_ns, kind, 0, 1, 6))
                made.now_ns += 50 * US
        else:
            made.now_ns += 100 * US
            if number == 89:
                marker = Marker(made.now_ns, layout.REST, 2, 1, layout.pack_rest(80, 0, 0, 0))
                if at_once:
                    assert made.loop.feed_fetches(marker)[:3] == (6, 80, 50 * US)
                else:
                    assert len(list(made.loop.feed_rest(marker))) == 160
    made.loop.feed_boundary(Marker(made.now_ns, layout.FETCH_BEGIN, 0, 1, 6))
    made.now_ns += 5 * US
    made.loop.feed_boundary(Marker(made.now_ns, layout.FETCH_END, layout.EXHAUSTED, 1, 6))
    evaluated_ns = made.now_ns - begun_ns
    made.burst(30)
    made.loop.machine.steps.finish()
    return made.loop.machine.steps.take_ended(), evaluated_ns


@pytest.mark.parametrize("at_once", [False, True])
def test_an_evaluation_in_a_rest_takes_no_time_of_steps(at_once):
    plain, _ = evaluated(rest=False)
    found, evaluated_ns = evaluated(rest=True, at_once=at_once)
    assert (found.total, found.eval_count, found.eval_ns) == (plain.total, plain.eval_count, plain.eval_ns)
    assert evaluated_ns - 60 * US <= found.eval_ns <= evaluated_ns
    assert all(step.timed for step in found.steps)
    assert [step.total_ns for step in found.steps] == [step.total_ns for step in plain.steps]


def test_what_was_learned_of_training_outlives_an_evaluations_rest():
    made = Simulated(BATCHES, 50, 3000)
    made.run(2000)
    learned = made.loop._rests._beyond
    for _ in range(10):
        for kind in (layout.FETCH_BEGIN, layout.FETCH_END):
            made.loop.feed_boundary(Marker(made.now_ns, kind, 0, 1, 6))
            made.now_ns += 50 * US
    list(made.loop.feed_rest(Marker(made.now_ns + 4000 * US, layout.REST, 2, 1, layout.pack_rest(40, 0, 0, 0))))
    assert made.loop._rests._beyond != learned
    made.now_ns += 5000 * US
    made.burst(8)
    made.rest(40)
    assert sum(made.loop._rests._beyond) > 0.9 * sum(learned) > 0


@pytest.mark.parametrize(
    "rest", [(0, (5, 0, 0, 0)), (4, (5, 0, 0, 0)), (2, (60000, 0, 0, 0)), (2, (5, 1, 1, 0))]
)  # length of the period, what passed
def test_fetches_are_fed_at_once_only_where_they_are_an_evaluations(rest):
    made = Simulated(BATCHES, 10**9, 0)
    made.burst(3)
    for kind in (layout.FETCH_BEGIN, layout.FETCH_END) * 8:
        made.loop.feed_boundary(Marker(made.now_ns, kind, 0, 1, 6))
        made.now_ns += 50 * US
    length, passed = rest
    assert made.loop.feed_fetches(Marker(made.now_ns, layout.REST, length, 1, layout.pack_rest(*passed))) is None


def test_a_first_fetch_is_no_evaluation_yet():
    made = Simulated(BATCHES, 10**9, 0)
    made.burst(3)
    for kind in (layout.FETCH_BEGIN, layout.FETCH_END):
        made.loop.feed_boundary(Marker(made.now_ns, kind, 0, 1, 5))
        made.now_ns += 50 * US
    assert made.loop.feed_fetches(Marker(made.now_ns, layout.REST, 2, 1, layout.pack_rest(5, 0, 0, 0))) is None


def test_fetches_that_ended_before_they_began_took_no_time():
    made = Simulated(BATCHES, 10**9, 0)
    made.burst(3)
    for kind in (layout.FETCH_BEGIN, layout.FETCH_END) * 8:
        made.loop.feed_boundary(Marker(made.now_ns, kind, 0, 1, 6))
        made.now_ns += 50 * US
    before_ns = made.loop.machine.last_ns
    passed = made.loop.feed_fetches(Marker(1, layout.REST, 2, 1, layout.pack_rest(5, 0, 0, 0)))
    assert (passed.batches, passed.wait_ns, made.loop.machine.last_ns) == (5, 0, before_ns)
