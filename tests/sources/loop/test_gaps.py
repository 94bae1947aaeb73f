"""What the monitor makes of a gap: the count and the time are exact, and nothing that is not whole is a timed step."""

import random
import statistics

import pytest

from tests.sources.loop.loop_script import markers
from tests.sources.markers.literal_ring import SECOND, FakeReader, follow
from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import Passed, pack_gap, unpack_gap
from tuimon.records import Steps
from tuimon.sources.loop.machine import LoopMachine, OpenPhase
from tuimon.sources.markers.follower import RingFollower

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
#: The next batch is fetched before the update.
AHEAD = [*BATCHES[2:4], *BATCHES[:2], *BATCHES[4:]]
#: Two models in turn.
TWO = [*BARE, *((kind, us) for kind, us in BARE)]


class Script:
    """Markers of a loop, in the notation of ``literal_ring``, and what was really done meanwhile."""

    def __init__(self, step, side_work_every=10**9, side_work_us=0, seed=1):
        self.random = random.Random(seed)
        self.step, self.every, self.side_us = step, side_work_every, side_work_us
        self.now_ns = 10 * SECOND
        self.markers = []
        self.made = self.side_ns = 0
        self.timed = []  # numbers of the steps in spells

    def pass_step(self, step, *, marked):
        for at, (kind, us) in enumerate(step):
            optimizer = 1 + at // 4 if step is TWO and kind in (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END) else 5
            if marked:
                self.markers.append((self.now_ns, kind, 0, optimizer))
            self.now_ns += round(us * US * self.random.uniform(0.9, 1.2))
        self.made += 1
        if self.made % self.every == 0:
            self.side_ns += self.side_us * US
            self.now_ns += self.side_us * US

    def spell(self, steps):
        for _ in range(steps):
            self.timed.append(self.made)
            self.pass_step(self.step, marked=True)

    def gap(self, steps, boundary=None):
        """From one boundary to another; ``boundary``: flag of its end."""
        kind = self.step[0][0]
        self.markers.append((self.now_ns, layout.GAP_BEGIN, 0, kind))
        for _ in range(steps):
            self.pass_step(self.step, marked=False)
        updates = steps * sum(kind == layout.OPTIMIZER_END for kind, _ in self.step)
        fetches = steps if kind == layout.FETCH_BEGIN else 0
        passed = pack_gap(fetches, updates, updates, fetches)
        self.markers.append((self.now_ns, layout.GAP_END, kind if boundary is None else boundary, passed))

    def run(self, steps):
        self.spell(40)
        while self.made < steps:
            self.gap(self.random.randint(40, 120))
            self.spell(16)
        return self

    def records(self):
        """Of the whole run, in one window each second."""
        end_ns = self.now_ns + SECOND
        follower = RingFollower(FakeReader(self.markers), 1.0, self.markers[0][0])
        follower.reader.waiting = []
        return [record for record in follower.last(end_ns) if isinstance(record, Steps)]


def machine_of(script):
    machine = LoopMachine()
    for time_ns, kind, flag, value in script.markers:
        if kind == layout.GAP_BEGIN:
            machine.begin_gap(time_ns, value)
        elif kind == layout.GAP_END:
            machine.end_gap(time_ns, unpack_gap(value), flag)
        else:
            machine.feed(time_ns, kind, flag, value)
    return machine


def ended(script):
    machine = machine_of(script)
    machine.steps.finish()
    return machine.steps.take_ended()


@pytest.mark.parametrize("step", [BATCHES, BARE, AHEAD, TWO])
def test_steps_and_time_are_exact(step):
    script = Script(step, 100, 20_000).run(3000)
    found = ended(script)
    assert sum(part.count for part in found) == script.made
    timed = [part for part in found if part.timed]
    assert len(script.timed) / 3 < len(timed) <= len(script.timed)
    assert sum(part.total_ns for part in found) == pytest.approx(script.now_ns - 10 * SECOND, abs=400 * US)
    usual_us = sum(us for _, us in step)
    assert statistics.median(part.total_ns for part in timed) == pytest.approx(1.05 * usual_us * US, rel=0.02)


@pytest.mark.parametrize(("step", "least"), [(BATCHES, 16), (BARE, 15), (TWO, 15)])
def test_only_whole_steps_of_a_spell_are_timed(step, least):
    script = Script(step)
    script.spell(40)
    script.gap(100)
    script.spell(16)
    script.gap(100)
    script.spell(3)
    parts = ended(script)
    flags = "".join("C" if part.only_counted else "t" if part.timed else "u" for part in parts)
    first, spell, _ = flags.split("C")
    assert len(first) >= 39 and spell.count("t") >= least and "u" not in spell.lstrip("u")


@pytest.mark.parametrize(("every", "side_us"), [(10**9, 0), (50, 3000), (1000, 100_000)])
def test_shares_are_unbiased(every, side_us):
    """Work every so many steps has the share that it has, whether or not a timed step has it."""
    shares, expected = [], []
    for seed in range(6):
        script = Script(BATCHES, every, side_us, seed).run(6000)
        steps = script.records()
        total_ns = sum(record.total_ns for record in steps)
        phases = {phase.name: phase.total_ns for record in steps for phase in record.phases}
        assert sum(phases.values()) == total_ns
        shares.append(phases["other"] / total_ns)
        expected.append((script.side_ns + script.made * 1.05 * 40 * US) / (script.now_ns - 10 * SECOND))
    assert statistics.fmean(shares) == pytest.approx(statistics.fmean(expected), rel=0.05)


def test_a_pause_in_a_gap_is_in_its_time_and_in_no_timed_step():
    script = Script(BATCHES)
    script.spell(40)
    script.gap(50)
    pause_ns = 5 * SECOND
    time_ns, *end = script.markers[-1]
    script.markers[-1] = (time_ns + pause_ns, *end)
    script.now_ns += pause_ns
    script.spell(16)
    (record,) = script.records()
    assert record.count == 106 and record.total_ns > pause_ns
    assert record.timed in (55, 56) and record.slowest is not None and record.slowest.total_ns < 400 * US
    assert len(record.histogram) < 30


def test_in_a_gap_no_phase_is_known_and_it_has_begun_with_the_gap():
    script = Script(BATCHES)
    script.spell(40)
    script.markers.append((script.now_ns, layout.GAP_BEGIN, 0, layout.FETCH_BEGIN))
    machine = machine_of(script)
    assert machine.open_phase == OpenPhase(None, script.now_ns)
    machine.end_gap(script.now_ns + 5 * US, Passed(3, 3, 3, 3), layout.FETCH_BEGIN)
    assert machine.open_phase == OpenPhase("between", script.now_ns + 5 * US)


@pytest.mark.parametrize("step", [BATCHES, BARE])
def test_a_ring_that_is_found_in_a_gap(step):
    """What it counts is counted, and how long its steps took is not known."""
    script = Script(step)
    script.gap(50)
    del script.markers[0]
    script.spell(30)
    script.gap(50)
    script.spell(16)
    found = ended(script)
    assert sum(part.count for part in found) in range(script.made - 1, script.made + 1)


@pytest.mark.parametrize("place", layout.GAP_IN_STEP)
def test_a_step_in_which_a_gap_was_cut_short_has_no_times_nor_the_next(place):
    script = Script(BATCHES)
    script.spell(40)
    script.gap(49, place)
    script.markers[-1] = (*script.markers[-1][:3], pack_gap(50, 50, 50, 49))
    if place == layout.GAP_AFTER_FETCH:
        backward = (layout.BACKWARD_BEGIN, layout.BACKWARD_END)
        script.markers += [(script.now_ns + at, kind, 0, 0) for at, kind in enumerate(backward, 1)]
    if place != layout.GAP_AFTER_UPDATE:
        update = (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END)
        script.markers += [(script.now_ns + at, kind, 0, 5) for at, kind in enumerate(update, 3)]
    script.now_ns += 10 * US
    script.spell(5)
    parts = ended(script)
    flags = "".join("C" if part.only_counted else "t" if part.timed else "u" for part in parts)
    assert flags == "t" * 40 + ("Cuu" + "t" * 4 if place == layout.GAP_AFTER_UPDATE else "Cu" + "t" * 5)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_markers_of_gaps_are_counted_as_they_say(seed, monkeypatch):
    """Whatever they hold, in whatever order: no count is negative, and phases add up."""
    monkeypatch.setattr(FakeReader, "name", lambda self, number: "?")
    monkeypatch.setattr(FakeReader, "loading", lambda self: iter(()), raising=False)
    random_ = random.Random(seed)
    loop = [BARE, TWO, BATCHES, [*BATCHES, (layout.STEP, 5)]][seed % 4]
    kinds = [*loop, *loop, *((kind, 5) for kind in sorted(layout.GAPS))]
    now_ns, markers = 10 * SECOND, []
    for _ in range(3000):
        kind, us = random_.choice(kinds) if len(markers) > 200 else loop[len(markers) % len(loop)]
        now_ns += random_.randrange(us * US * 20)
        value = random_.choice([0, 2, 4, 12, pack_gap(*(random_.choice([0, 1, 7, 65535]) for _ in range(4)))])
        markers.append((now_ns, kind, random_.choice([0, 0, 1, 2, 4, 7, 12]), value))
    _, records = follow(markers, now_ns + SECOND)
    assert records
    for record in records:
        assert min(record.count, record.total_ns, record.usual, *(phase.total_ns for phase in record.phases), 0) >= 0
        known_ns = sum(phase.total_ns for phase in record.phases if phase.name != "eval")
        assert known_ns == record.total_ns or not record.timed


def test_an_evaluation_after_a_gap_is_one_though_a_batch_of_it_trains():
    """As many batches as the update before took may be of the next; that was the one before the gap."""
    train, held_out = (
        "fetch@1:1 wait:1 bwd:1 opt:1 wait:1 ",
        "fetch@2:1 wait:1 " * 25 + "bwd:1 " + "fetch@2:1 wait:1 " * 24,
    )
    machine, now_ns = LoopMachine(), 0

    def feed_script(script):
        nonlocal now_ns
        for time_ns, kind, flag, value in markers(script, now_ns):
            machine.feed(time_ns, kind, flag, value)
            now_ns = time_ns

    feed_script(train * 20 + held_out + train)
    machine.begin_gap(now_ns + US, layout.FETCH_BEGIN)
    now_ns += SECOND
    machine.end_gap(now_ns, Passed(19, 19, 19, 18), layout.GAP_AFTER_UPDATE)
    feed_script(held_out + train)
    machine.steps.finish()
    assert sum(part.count for part in machine.steps.take_ended()) == 20 + 1 + 19 + 1
    assert machine.steps.take_evaluation()[1] == 48 + 48
