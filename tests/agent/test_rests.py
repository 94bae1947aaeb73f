"""Rests: a loop whose markers rest is counted exactly as one whose markers do not."""

import threading
import time

import pytest

from tuimon.agent import install, rests
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import RingReader
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

torch = pytest.importorskip("torch")
from torch import autograd  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from tests.agent.batches import Batches  # noqa: E402
from tuimon import phase  # noqa: E402
from tuimon.agent import api  # noqa: E402
from tuimon.agent.ranges import range_markers  # noqa: E402


class Loop:
    """A parameter to train, and what the shapes below have in common."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.optimizer = self.sgd()

    def sgd(self):
        return torch.optim.SGD([self.weight], lr=1e-3)

    def backward(self, batch=1.0):
        (self.weight * batch).sum().backward()

    def step(self, batch=1.0):
        self.backward(batch)
        self.optimizer.step()


def bare(loop):
    for _ in range(300):
        loop.step()


def epochs(loop):
    loader = DataLoader(Batches(70))
    for _ in range(5):
        for batch in loader:
            loop.step(batch)


def evaluated(loop):
    train, held_out = DataLoader(Batches(60)), DataLoader(Batches(7))
    for _ in range(4):
        for batch in train:
            loop.step(batch)
        for batch in held_out:
            (loop.weight * batch).sum()


def evaluated_inside(loop):
    """One batch of a second iterator every 37 steps, which lives on."""
    train, held_out = DataLoader(Batches(300)), iter(DataLoader(Batches(50)))
    for number, batch in enumerate(train):
        loop.step(batch)
        if number % 37 == 36:
            (loop.weight * next(held_out)).sum()


def accumulated(loop):
    """Three backwards an update, and later five."""
    for number, batch in enumerate(DataLoader(Batches(600))):
        loop.backward(batch)
        if number % (3 if number < 300 else 5) == 0:
            loop.optimizer.step()


def two_optimizers(loop):
    other = loop.sgd()
    for batch in DataLoader(Batches(200)):
        loop.step(batch)
        loop.backward(batch)
        other.step()


def many_optimizers(loop):
    each = [loop.sgd() for _ in range(8)]
    for _ in range(100):
        loop.backward()
        for optimizer in each:
            optimizer.step()


def another_optimizer_now_and_then(loop):
    other = loop.sgd()
    for number in range(300):
        loop.step()
        if number % 41 == 40:
            loop.backward()
            other.step()


def ranges_now_and_then(loop):
    for number in range(300):
        loop.step()
        if number % 45 == 44:
            with phase("log"):
                loop.weight.sum()


def closures_now_and_then(loop):
    def closure():
        loop.optimizer.zero_grad()
        loss = (loop.weight * 2).sum()
        loss.backward()
        return loss

    for number in range(200):
        loop.step()
        if number % 50 == 49:
            loop.optimizer.step(closure)


def failing_now_and_then(loop):
    for number, batch in enumerate(DataLoader(Batches(300))):
        loop.step(batch)
        if number % 60 == 59:
            with pytest.raises(RuntimeError):
                loop.weight.detach().sum().backward()


def a_loader_that_fails(loop):
    for _ in range(2):
        with pytest.raises(ValueError, match="bad item"):
            for batch in DataLoader(Batches(90, bad=83)):
                loop.step(batch)


def skipped_by_a_scaler(loop):
    scaler = torch.amp.GradScaler("cpu", growth_interval=10**6)
    for number in range(200):
        loop.optimizer.zero_grad()
        if number % 40 == 39:
            scaler.scale((loop.weight * float("inf")).sum()).backward()
            scaler.step(loop.optimizer)
            scaler.update()
        else:
            loop.step()


def another_thread(loop):
    """It has an optimizer of its own; records cover the thread that makes more updates."""

    def train_a_little():
        other = Loop()
        for _ in range(20):
            other.step()

    for number in range(400):
        loop.step()
        if number == 200:
            thread = threading.Thread(target=train_a_little)
            thread.start()
            thread.join(60)


def a_range_after_a_backward_now_and_then(loop):
    for number in range(300):
        loop.backward()
        if number % 45 == 44:
            with phase("clip"):
                loop.weight.sum()
        loop.optimizer.step()


def another_thread_after_a_backward(loop):
    """Its update ends the rest of this one between a backward and its update."""

    def train_once():
        other.step()

    other = Loop()
    for number, batch in enumerate(DataLoader(Batches(400))):
        loop.backward(batch)
        if number % 45 == 44:
            thread = threading.Thread(target=train_once)
            thread.start()
            thread.join(60)
        loop.optimizer.step()


SHAPES = [
    bare,
    epochs,
    evaluated,
    evaluated_inside,
    accumulated,
    two_optimizers,
    many_optimizers,
    another_optimizer_now_and_then,
    ranges_now_and_then,
    closures_now_and_then,
    failing_now_and_then,
    a_loader_that_fails,
    skipped_by_a_scaler,
    another_thread,
    a_range_after_a_backward_now_and_then,
    another_thread_after_a_backward,
]


@pytest.fixture
def counted(hooked, monkeypatch):
    """Runs a shape under our hooks; gives the sums of its Steps records."""
    monkeypatch.setattr(api, "_runtime", hooked)
    monkeypatch.setattr(api, "_ranges", range_markers)
    monkeypatch.setattr(hooked, "facts_due", False)

    def run(shape):
        rests.rest.due = 1
        reader = RingReader(hooked.writer().path)
        reader.read()  # what was before
        follower = RingFollower(reader, 1000.0, time.monotonic_ns())
        shape(Loop())
        hooked.end_rest()
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


def rest_always(monkeypatch, periods):
    """Whatever a step takes, and so on a busy machine as on an idle one."""
    monkeypatch.setattr(rests, "_BEGIN_SHARE", 0.0)
    monkeypatch.setattr(rests, "_END_SHARE", 0.0)
    monkeypatch.setattr(rests, "_LONGEST_NS", 10**15)
    monkeypatch.setattr(rests, "_PATIENCE", 5)
    monkeypatch.setattr(rests, "_periods", lambda period, drawn: periods)
    monkeypatch.setattr(rests, "_latest", None)
    monkeypatch.setattr(rests, "_owed", 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_counts_with_rests_and_without(counted, monkeypatch, shape):
    monkeypatch.setattr(rests, "_BEGIN_SHARE", 1e9)
    monkeypatch.setattr(rests, "_END_SHARE", 1e9)
    plain, timed = counted(shape)
    assert timed == plain["steps"]
    for periods in (7, 30):
        rest_always(monkeypatch, periods)
        found, timed = counted(shape)
        if shape is failing_now_and_then:  # a rest does not see a backward fail: nothing is dropped for it
            assert found["updates"] == plain["updates"]
            assert plain["steps"] <= found["steps"] <= found["updates"]
        elif shape is skipped_by_a_scaler:  # nor that no update follows one, but for the scaler's own marker
            assert {**found, "backwards": plain["backwards"]} == plain
        else:
            assert found == plain
        assert timed < 0.8 * found["steps"], periods


def test_what_follows_a_rest_is_marked(hooked, monkeypatch):
    """In a rest nothing is written; then what has passed, and the boundary that ended it."""
    rest_always(monkeypatch, 10)
    monkeypatch.setattr(hooked, "facts_due", False)
    rests.rest.due = 1
    reader, loop = RingReader(hooked.writer().path), Loop()
    for _ in range(8):
        loop.step()
    reader.read()
    for _ in range(4):
        loop.step()
    hooked.writer().flush()
    assert reader.read() == []
    loop.backward()
    hooked.emit(layout.STEP)
    hooked.writer().flush()
    rest, step = reader.read()
    passed = layout.unpack_rest(rest.value)
    assert (rest.kind, rest.flag, step.kind) == (layout.REST, 4, layout.STEP)
    assert passed.backwards == passed.optimizer_begins == passed.optimizer_ends
    assert passed.backwards >= 5


def is_hooked():
    hooked = {
        module._engine_run_backward.__code__.co_name == "tuimon_backward" for module in (autograd, autograd.graph)
    }
    assert len(hooked) == 1  # both modules alike
    return hooked.pop()


def rest_now(hooked, monkeypatch):
    """A loop in the middle of a rest."""
    rest_always(monkeypatch, 10)
    monkeypatch.setattr(hooked, "facts_due", False)
    rests.rest.due = 1
    loop = Loop()
    for _ in range(10):
        loop.step()
    assert rests.rest.begun is not None
    return loop


def test_in_a_rest_the_backward_is_not_hooked(hooked, monkeypatch):
    loop = rest_now(hooked, monkeypatch)
    assert not is_hooked()
    for _ in range(10):
        loop.step()
        assert is_hooked() == (rests.rest.begun is None)
    hooked.end_rest()
    assert is_hooked()


def test_hooks_removed_in_a_rest_stay_removed(hooked, monkeypatch):
    rest_now(hooked, monkeypatch)
    install.uninstall()
    assert not is_hooked()
    rests.end()
    rests.forget()
    assert not is_hooked()


def test_another_binding_of_the_backward_outlives_a_rest(hooked, monkeypatch):
    """Whoever binds it in a rest found the original, and puts that back; the next look at the loop mends it."""
    loop = rest_now(hooked, monkeypatch)
    original = autograd._engine_run_backward

    def theirs(*args, **kwargs):
        return original(*args, **kwargs)

    autograd._engine_run_backward = autograd.graph._engine_run_backward = theirs
    hooked.end_rest()
    assert autograd._engine_run_backward is autograd.graph._engine_run_backward is theirs
    autograd._engine_run_backward = autograd.graph._engine_run_backward = original
    monkeypatch.setattr(rests, "_BEGIN_SHARE", 1e9)
    monkeypatch.setattr(rests, "_END_SHARE", 1e9)
    rests.rest.due = 1
    loop.step()
    assert is_hooked()


def marker(kind, value=0, flag=0, tid=1):
    return (0, kind, flag, tid, value)


STEP = [
    marker(layout.FETCH_BEGIN, 65537, 3),
    marker(layout.FETCH_END, 65537),
    marker(layout.BACKWARD_BEGIN),
    marker(layout.BACKWARD_END),
    marker(layout.OPTIMIZER_BEGIN, 9),
    marker(layout.OPTIMIZER_END, 9),
]
STEP_KINDS = (layout.FETCH_BEGIN, layout.BACKWARD_BEGIN, layout.OPTIMIZER_BEGIN)


def test_a_period_is_the_shortest_that_repeats():
    found = rests._period(STEP * 6, None)
    assert found is not None and found[0] == 6 and found[2:] == (65537, STEP_KINDS, 1, 1, 1)
    found = rests._period((STEP[:4] * 2 + STEP) * 5, None)
    assert found is not None and (found.length, found.fetches, found.backwards, found.updates) == (14, 3, 3, 1)


@pytest.mark.parametrize(
    "markers",
    [
        [],
        STEP * 3,  # not often enough
        (STEP * 6)[:-1],  # not at its end
        [*STEP * 6, marker(layout.RANGE_PUSH, 1), marker(layout.RANGE_POP)],
        [*STEP, marker(layout.RANGE_PUSH, 1), marker(layout.RANGE_POP), *STEP[4:]] * 6,
        [*STEP[:2], marker(layout.FETCH_BEGIN, 65538), marker(layout.FETCH_END, 65538), *STEP[2:]] * 6,  # two iterators
        [STEP[0], marker(layout.FETCH_END, 65537, layout.EXHAUSTED), *STEP[2:]] * 6,
        [*STEP[:2], STEP[4], *STEP[2:4], STEP[5]] * 6,  # a closure
        [*STEP[:2], marker(layout.BACKWARD_BEGIN, tid=2), marker(layout.BACKWARD_END, tid=2), *STEP[4:]] * 6,
    ],
)
def test_other_markers_have_no_period(markers):
    assert rests._period(markers, None) is None
