"""Whole steps taken at once give the records that the same markers give one by one."""

import json
import random

import pytest

from tests.sources.markers.literal_ring import FakeReader
from tuimon.agent.ring import layout
from tuimon.sources.loop.regular import RegularSteps
from tuimon.sources.markers.follower import RingFollower

LOADER = {"n": 1, "dataset": "D", "kind": "map", "workers": 2, "prefetch": 2, "batch": 4, "pin": False}
LOADER |= {"persistent": False, "context": None}
SECOND = 10**9
#: One step of each kind of loop: F batch, B backward, ( ) a backward around others, O1 O2 updates of two optimizers,
#: [ ] an update around others, S tuimon.step(), G a backward with an event, R a batch in a user range.
LOOPS = {
    "bare": "B O1",
    "loader": "F B O1",
    "accumulation": "F B F B F B O1",
    "bare accumulation": "B B O1",
    "batches together": "F F B B O1",
    "two models": "F B O1 B O2",
    "a look at gradients": "F B O1 B B",
    "alternating": "F B O1 B F B O1",
    "two bare models": "B O1 B O2",
    "an optimizer a parameter": "B O1 O2 O3 O4 O5",
    "by hand": "B",
    "closure": "[ B ]",
    "LBFGS": "F [ B B B ]",
    "scaler": "F B [ O1 ]",
    "step()": "B O1 S",
    "step() and loader": "F B O1 S",
    "checkpointing": "F ( B B ) O1",
    "two loaders": "F E B O1",
    "events": "F G O1",
    "range": "R B O1",
}
#: What may come between two steps: a batch that is evaluated, an epoch's end, a pause, a profiler, an abandoned update.
UPSETS = ["E", "E E X", "X I", "D I", "D", "B", "P", "on", "off", "[", "made", "other", "push", "late"]


class Loop:
    """Writes markers of a loop, with gaps of random length between them."""

    def __init__(self, rng):
        self.rng = rng
        self.now_ns = 10 * SECOND
        self.gap_ns = rng.choice([3e4, 1e6, 2e7])
        self.zero_gaps = rng.random() < 0.3
        self.iterator = 2 << layout.LOADER_SHIFT | 1
        self.events = 3
        self.markers = []

    def emit(self, kind, value=0, flag=0, tid=7):
        gap_ns = 0 if self.zero_gaps and self.rng.random() < 0.02 else 1 + int(self.rng.expovariate(1 / self.gap_ns))
        self.now_ns += gap_ns
        self.markers.append(layout.Marker(self.now_ns, kind, flag, tid, value))

    def pair(self, kind, value=0, flag=0, end_flag=0):
        self.emit(kind, value, flag)
        self.emit(kind + 1, value, end_flag)

    def fetch(self, iterator=None, end_flag=0):
        self.pair(layout.FETCH_BEGIN, iterator or self.iterator, self.rng.choice([0, 1, 2, 3]), end_flag)

    def do(self, tokens):
        for token in tokens.split():
            self.do_one(token)

    def do_one(self, token):
        match token:
            case "F" | "E" | "X":
                self.fetch(self.iterator + 50 * (token == "E"), layout.EXHAUSTED if token == "X" else layout.NO_EVENT)
            case "R":
                self.emit(layout.RANGE_PUSH, 1)
                self.fetch()
                self.emit(layout.RANGE_POP)
            case "B":
                self.pair(layout.BACKWARD_BEGIN)
            case "G":
                self.events += 1
                self.pair(layout.BACKWARD_BEGIN, flag=self.events if self.events % 10 == 0 else layout.NO_EVENT)
            case "I":
                self.iterator += 1
                self.emit(layout.ITER_BEGIN)
                self.emit(layout.ITER_END, self.iterator)
            case "D":
                self.emit(layout.ITER_BEGIN, self.iterator)
                self.emit(layout.ITER_END)
            case "late":
                self.now_ns += int(self.rng.random() * 3 * SECOND)
            case "other":
                self.emit(self.rng.choice([layout.BACKWARD_BEGIN, layout.BACKWARD_END]), tid=8)
            case "P":
                self.emit(layout.GC_PAUSE, 1000, 2)
            case _ if token.startswith("O"):
                self.pair(layout.OPTIMIZER_BEGIN, int(token[1:]))
            case _:
                self.emit(SINGLE[token], 1)


SINGLE = {
    "(": layout.BACKWARD_BEGIN,
    ")": layout.BACKWARD_END,
    "[": layout.OPTIMIZER_BEGIN,
    "]": layout.OPTIMIZER_END,
    "S": layout.STEP,
    "on": layout.PROFILER_ON,
    "off": layout.PROFILER_OFF,
    "made": layout.OPTIMIZER_MADE,
    "push": layout.RANGE_PUSH,
}


class Reader(FakeReader):
    """A ring whose markers come bit by bit."""

    def __init__(self):
        super().__init__([])

    def loading(self):
        return iter(())

    def name(self, number):
        return {1: "batch\x1ftrain.py\x1fmain\x1f12", 2: json.dumps(LOADER)}.get(number, "?")


def records_of(written, reads_ns):
    """All records of the markers, read at these times."""
    reader, left = Reader(), list(written)
    follower = RingFollower(reader, 1.0, written[0].time_ns)
    found = []
    for read_ns in reads_ns:
        reader.waiting = [marker for marker in left if marker.time_ns <= read_ns]
        left = left[len(reader.waiting) :]
        found += follower.windows(read_ns)
    found += follower.last(written[-1].time_ns + 1)
    return found, follower.steps


@pytest.fixture
def taken(monkeypatch):
    """How many markers were taken in whole steps so far."""
    counted = [0]
    take = RegularSteps.take

    def counting(self, *args):
        found = take(self, *args)
        counted[0] += found[1] if found else 0
        return found

    monkeypatch.setattr(RegularSteps, "take", counting)
    return counted


def assert_alike(loop, rng, monkeypatch):
    reads_ns = [loop.markers[0].time_ns]
    while reads_ns[-1] < loop.now_ns:
        reads_ns.append(reads_ns[-1] + rng.choice([SECOND // 15, SECOND // 4, SECOND, SECOND]))
    at_once = records_of(loop.markers, reads_ns)
    with monkeypatch.context() as one_by_one:
        one_by_one.setattr(RegularSteps, "take", lambda *_: None)
        assert repr(at_once) == repr(records_of(loop.markers, reads_ns))


@pytest.mark.parametrize("name", LOOPS)
def test_a_regular_loop_is_mostly_taken_at_once(name, taken, monkeypatch):
    rng = random.Random(name)
    loop = Loop(rng)
    loop.gap_ns, loop.zero_gaps = 1e6, False
    for _ in range(600):
        loop.do(LOOPS[name])
    assert_alike(loop, rng, monkeypatch)
    share = taken[0] / len(loop.markers)
    assert share == 0 if name == "range" else share > 0.6, share


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_between_the_steps_the_records_are_the_same(seed, taken, monkeypatch):
    rng = random.Random(seed)
    loop = Loop(rng)
    for _ in range(rng.randint(2, 5)):
        step = LOOPS[rng.choice(list(LOOPS))]
        for _ in range(rng.randint(1, 100)):
            if rng.random() < 0.03:
                loop.do(rng.choice(UPSETS))
            loop.do(step)
    assert_alike(loop, rng, monkeypatch)
