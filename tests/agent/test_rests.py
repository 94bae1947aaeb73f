"""Rests: a loop whose markers rest is counted exactly as one whose markers do not."""

import threading
import time

import pytest

from tuimon.agent import install, rests
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
from tests.agent.rest_loops import SHAPES, Loop, failing_now_and_then, rest_always, skipped_by_a_scaler
from tuimon.agent import api
from tuimon.agent.ranges import range_markers


@pytest.fixture
def counted(hooked, monkeypatch):
    """Runs a shape under our hooks; gives the sums of its Steps records."""
    monkeypatch.setattr(api, "_runtime", hooked)
    monkeypatch.setattr(api, "_ranges", range_markers)
    monkeypatch.setattr(hooked, "facts_due", False)

    def run(shape):
        rests.rest.due = 1
        hooked.writer().emit(layout.MARK)  # no period reaches back to the run before, which the follower does not see
        reader = RingReader(hooked.writer().path)
        reader.read()  # what was before
        follower = RingFollower(reader, 1000.0, time.monotonic_ns())
        shape(Loop())
        hooked.end_rest()
        rests.rest.unmarked = 0  # the next test's update follows none of these backwards
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
def test_the_same_counts_with_rests_and_without(counted, monkeypatch, shape):
    monkeypatch.setattr(rests, "_BEGIN_SHARE", 1e9)
    monkeypatch.setattr(rests, "_END_SHARE", 1e9)
    plain, timed = counted(shape)
    assert timed >= plain["steps"] - 1  # the first step without a DataLoader is of unknown length
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


def evaluate(loop, batches):
    for batch in DataLoader(Batches(batches)):
        (loop.weight * batch).sum()


def test_the_fetches_of_a_long_evaluation_rest_and_are_counted(hooked, monkeypatch):
    loop = rest_now(hooked, monkeypatch)
    hooked.end_rest()
    hooked.writer().flush()
    reader = RingReader(hooked.writer().path)
    reader.read()
    evaluate(loop, 100)
    hooked.writer().flush()
    markers = [marker for marker in reader.read() if marker.kind != layout.GC_PAUSE]
    fetched = sum(marker.kind == layout.FETCH_END for marker in markers)
    passed = [layout.unpack_rest(marker.value) for marker in markers if marker.kind == layout.REST]
    assert fetched + sum(rest.fetches for rest in passed) == 101  # with the one that finds the end
    assert fetched < 60 and all(rest[1:] == (0, 0, 0) for rest in passed)


def test_a_backward_in_an_evaluations_rest_is_marked(hooked, monkeypatch):
    loop = rest_now(hooked, monkeypatch)
    hooked.end_rest()
    fetches = iter(DataLoader(Batches(100)))
    while rests.rest.open is None:
        next(fetches)
    assert is_hooked()
    hooked.writer().flush()
    reader = RingReader(hooked.writer().path)
    reader.read()
    next(fetches)
    loop.backward()
    hooked.writer().flush()
    kinds = [marker.kind for marker in reader.read() if marker.kind != layout.GC_PAUSE]
    assert kinds == [layout.REST, layout.BACKWARD_BEGIN, layout.BACKWARD_END]


def test_a_thread_that_only_fetches_does_not_rest(hooked, monkeypatch):
    loop = rest_now(hooked, monkeypatch)
    hooked.end_rest()
    rested = []
    monkeypatch.setattr(rests, "_begin", lambda *_: rested.append(threading.get_ident()))
    thread = threading.Thread(target=evaluate, args=(loop, 100))
    thread.start()
    thread.join()
    assert rested == []


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
    assert rests.rest.open is not None
    return loop


@pytest.mark.parametrize(("marker_ns", "is_searched"), [(0, False), (10**12, True)])
def test_a_loop_in_which_markers_cost_nothing_is_not_searched_for_a_period(hooked, monkeypatch, marker_ns, is_searched):
    searched = []
    rest_always(monkeypatch, periods=20)
    monkeypatch.setattr(rests, "MARKER_NS", marker_ns)
    monkeypatch.setattr(rests, "_is_resting_loop", False)
    monkeypatch.setattr(rests, "find_period", lambda latest, known: searched.append(len(latest)))
    rests.rest.due = 1
    loop = Loop()
    for _ in range(10):
        loop.step()
    assert bool(searched) is is_searched


def test_in_a_rest_the_backward_is_not_hooked(hooked, monkeypatch):
    loop = rest_now(hooked, monkeypatch)
    assert not is_hooked()
    for _ in range(10):
        loop.step()
        assert is_hooked() == (rests.rest.open is None)
    hooked.end_rest()
    assert is_hooked()


def end_hook():
    """What torch calls after an optimizer's step."""
    return list(torch_optimizer._global_optimizer_post_hooks.values())[-1].__name__


def test_in_a_rest_only_the_end_of_its_last_update_is_marked(hooked, monkeypatch):
    loop = rest_now(hooked, monkeypatch)
    hooked.writer().flush()
    reader = RingReader(hooked.writer().path)
    reader.read()
    while rests.rest.open is not None:
        assert end_hook() == "_nothing"
        loop.step()
    assert end_hook() == "_step_ends"
    hooked.writer().flush()
    kinds = [marker.kind for marker in reader.read() if marker.kind != layout.GC_PAUSE]
    assert kinds == [layout.REST, layout.OPTIMIZER_END]
    reader.close()


def test_an_update_that_fails_in_a_rest_is_counted(hooked, monkeypatch):
    loop = rest_now(hooked, monkeypatch)
    passed = rests.rest.open.period.updates * rests.rest.open.periods - rests.rest.open.updates

    def fail():
        raise ValueError("no loss")

    with pytest.raises(ValueError, match="no loss"):
        loop.optimizer.step(fail)
    loop.step()
    hooked.writer().flush()
    reader = RingReader(hooked.writer().path)
    hooked.end_rest()
    hooked.writer().flush()
    (rest,) = [marker for marker in reader.read() if marker.kind == layout.REST][-1:]
    assert layout.unpack_rest(rest.value).optimizer_begins == passed + 2
    reader.close()


def test_hooks_removed_in_a_rest_stay_removed(hooked, monkeypatch):
    rest_now(hooked, monkeypatch)
    install.uninstall()
    assert not is_hooked()
    rests.end()
    rests.forget()
    assert not is_hooked()
    assert not torch_optimizer._global_optimizer_post_hooks


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


def test_another_thread_that_is_held_up_while_it_ends_a_rest(counted, hooked, monkeypatch):
    """The system may let it go on much later: what has passed is counted once, and before what follows."""
    rest_always(monkeypatch, 30)
    switch_hooks, held, go_on = rests._switch_hooks, threading.Event(), threading.Event()

    def switch_hooks_late(*, on):
        if threading.current_thread() is other:
            held.set()
            assert go_on.wait(60)
        switch_hooks(on=on)

    def shape(loop):
        is_held = False
        for number, batch in enumerate(DataLoader(Batches(400))):
            loop.step(batch)
            if not is_held and number > 100 and rests.rest.open is not None:
                is_held = True
                other.start()
                assert held.wait(60)
            if number == 300:
                go_on.set()
                other.join(60)

    other = threading.Thread(target=lambda: hooked.emit(layout.OPTIMIZER_BEGIN))
    monkeypatch.setattr(rests, "_switch_hooks", switch_hooks_late)
    found, _ = counted(shape)
    assert found == {"steps": 400, "backwards": 400, "updates": 400, "evaluated": 0, "dropped": 0}


def test_a_thread_that_ends_in_a_rest_says_it(counted, monkeypatch):
    """At once: what follows it, in whichever thread, belongs to no step of its own."""
    rest_always(monkeypatch, 30)
    at_end = []

    def train(loop):
        made = 200
        for _ in range(made):
            loop.step()
        while rests.rest.open is None:
            loop.step()
            made += 1
        at_end.append(made)

    def shape(loop):
        for _ in range(2):  # the second has the number of the first, most often
            thread = threading.Thread(target=train, args=(loop,))
            thread.start()
            thread.join()
            assert rests.rest.open is None

    monkeypatch.setattr(rests, "_thread", 0)
    found, timed = counted(shape)
    assert found["steps"] == found["updates"] in at_end
    assert timed < found["steps"]


def test_a_last_update_is_looked_for_among_few_markers_first(hooked, monkeypatch):
    writer, counts = hooked.writer(), []
    latest = type(writer).latest
    monkeypatch.setattr(type(writer), "latest", lambda self, count: counts.append(count) or latest(self, count))
    monkeypatch.setattr(rests.rest, "writer", writer)
    for kind, value in ((layout.BACKWARD_BEGIN, 0), (layout.BACKWARD_END, 0), (layout.OPTIMIZER_BEGIN, 7)):
        writer.emit(kind, value)
    assert rests._has_passed_backward(7)
    assert counts == [rests._NEAR]
    others = threading.Thread(target=lambda: [writer.emit(layout.MARK) for _ in range(2 * rests._NEAR)])
    others.start()
    others.join()
    assert rests._has_passed_backward(7)
    assert counts[1:] == [rests._NEAR, rests._REMEMBERED]


@pytest.mark.parametrize("optimizers", [1, 2])
def test_a_thread_that_trains_beside_one_that_rests_keeps_its_backwards(hooked, monkeypatch, optimizers):
    """The rest of one takes the hook off the backward of both; several updates may follow one backward."""
    rest_always(monkeypatch, 30)
    monkeypatch.setattr(rests, "_thread", threading.get_ident())
    monkeypatch.setattr(rests, "_task", f"/proc/self/task/{threading.get_native_id()}")
    loop, other, turn, done, is_over = Loop(), Loop(), threading.Semaphore(0), threading.Semaphore(0), []
    updates = [other.sgd() for _ in range(optimizers)]

    def train():
        while turn.acquire() and not is_over:
            other.backward()
            for optimizer in updates:
                optimizer.step()
            done.release()

    def take_turn():
        turn.release()
        assert done.acquire(timeout=60)

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    reader = RingReader(hooked.writer().path)
    reader.read()
    take_turn()  # outside a rest
    in_rests = 0
    for _ in range(600):
        loop.step()
        if in_rests < 5 and rests.rest.left.updates:
            take_turn()
            in_rests += 1
    is_over.append(True)
    turn.release()
    thread.join()
    hooked.end_rest()
    rests.rest.unmarked = 0
    hooked.writer().flush()
    of_thread = [marker.kind for marker in reader.read() if marker.tid == thread.native_id]
    kinds = [kind for kind in of_thread if kind not in rests._OF_NO_LOOP]
    reader.close()
    assert in_rests == 5
    step = [layout.BACKWARD_BEGIN, layout.BACKWARD_END, *[layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END] * optimizers]
    assert kinds == step * 6


def test_another_threads_optimizer_is_no_part_of_a_rest(counted, monkeypatch):
    """Its step begins before the rest and ends within it."""
    rest_always(monkeypatch, 30)

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
            if number > 150 and rests.rest.open is not None and not finish.is_set():
                finish.set()
                thread.join(60)
        assert finish.is_set()

    found, _ = counted(shape)
    assert (found["updates"], found["backwards"]) == (400, 400)
