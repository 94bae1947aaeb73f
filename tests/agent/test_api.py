"""tuimon.phase, mark, step: real no-ops when not monitored, markers when they are."""

import asyncio
import inspect
import pickle
import threading

import pytest

import tuimon
from tests.agent.programs import ROOT, environment, fake_torch, python, said
from tuimon.agent import api, runtime
from tuimon.agent.ranges import ranges
from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import MARK, RANGE_END, RANGE_POP, RANGE_PUSH, RANGE_START, STEP
from tuimon.agent.ring.reader import RingReader


@pytest.fixture
def monitored(monkeypatch, shared_memory):
    """The API on a ring of its own, no torch needed; gives a function that reads what has been written."""
    monkeypatch.setattr(runtime, "on", True)
    monkeypatch.setattr(runtime, "is_compiling", lambda: False)
    assert runtime.open_ring()
    monkeypatch.setattr(api, "_runtime", runtime)
    monkeypatch.setattr(api, "_ranges", ranges)
    reader = RingReader(runtime._writer.path)

    def read():
        return [(m.kind, reader.name(m.value).split(layout.PLACE_SEPARATOR)) for m in reader.read()]

    read.reader = reader
    yield read
    reader.close()
    runtime.stop()


@pytest.fixture
def unmonitored(monkeypatch):
    monkeypatch.setattr(api, "_runtime", None)
    monkeypatch.setattr(runtime, "on", False)


def here():
    return inspect.currentframe().f_back.f_lineno


def kinds(read):
    return [kind for kind, _ in read()]


def test_a_phase_carries_its_place(monitored):
    with tuimon.phase("augment"):
        line = here() - 1
    (push, name), (pop, _) = monitored()
    assert (push, pop) == (RANGE_PUSH, RANGE_POP)
    assert name == ["augment", __file__, "test_a_phase_carries_its_place", str(line)]


def test_one_name_at_two_places_is_two(monitored):
    for _ in range(3):
        with tuimon.phase("a"):
            pass
        with tuimon.phase("a"):
            pass
    lines = [name[3] for kind, name in monitored() if kind == RANGE_PUSH]
    assert len(set(lines)) == 2 and lines == lines[:2] * 3


def test_mark_and_step(monitored):
    tuimon.mark("epoch")
    tuimon.step()
    (mark, name), (step, _) = monitored()
    assert (mark, name[0], step) == (MARK, "epoch", STEP)


def test_nested_reentered_and_left_by_an_exception(monitored):
    outer = tuimon.phase("outer")
    with pytest.raises(ZeroDivisionError), outer, tuimon.phase("inner"), outer:
        1 / 0  # noqa: B018
    assert kinds(monitored) == [RANGE_PUSH] * 3 + [RANGE_POP] * 3


def test_one_phase_in_several_threads(monitored):
    shared = tuimon.phase("shared")

    def work():
        for _ in range(200):
            with shared:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    markers = monitored.reader.read()
    for tid in {marker.tid for marker in markers}:
        assert [m.kind for m in markers if m.tid == tid] == [RANGE_PUSH, RANGE_POP] * 200


def test_a_decorated_function(monitored):
    @tuimon.phase("work")
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    assert double(4) == 8
    (push, name), (pop, _) = monitored()
    assert (push, pop) == (RANGE_PUSH, RANGE_POP)
    assert name == ["work", __file__, "double", str(double.__wrapped__.__code__.co_firstlineno)]
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert str(inspect.signature(double)) == "(x: int) -> int"


def test_a_decorated_function_that_raises(monitored):
    @tuimon.phase("work")
    def fail():
        raise KeyError("k")

    with pytest.raises(KeyError):
        fail()
    assert kinds(monitored) == [RANGE_PUSH, RANGE_POP]


def test_things_without_code(monitored):
    assert tuimon.phase("length")(len)("abc") == 3
    assert [name[0] for _, name in monitored()] == ["length", "?"]


def test_a_decorated_generator_counts_what_it_does_itself(monitored):
    @tuimon.phase("batches")
    def generator():
        got = []
        try:
            got.append((yield 1))
            try:
                yield 2
            except KeyError:
                got.append("thrown")
            yield 3
        finally:
            got.append("closed")
        return got

    assert inspect.isgeneratorfunction(generator)
    running = generator()
    assert kinds(monitored) == []
    assert next(running) == 1
    assert kinds(monitored) == [RANGE_PUSH, RANGE_POP]
    assert running.send("sent") == 2
    assert running.throw(KeyError()) == 3
    with pytest.raises(StopIteration) as stopped:
        next(running)
    assert stopped.value.value == ["sent", "thrown", "closed"]
    assert kinds(monitored) == [RANGE_PUSH, RANGE_POP] * 3
    abandoned = generator()
    next(abandoned)
    abandoned.close()
    assert list(generator()) == [1, 2, 3]


def test_a_decorated_generator_passes_errors_on(monitored):
    @tuimon.phase("batches")
    def generator():
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(generator())
    assert kinds(monitored) == [RANGE_PUSH, RANGE_POP] * 2


def test_decorated_coroutines_may_overlap(monitored):
    @tuimon.phase("fetch")
    async def fetch(first, second):
        first.set()
        await second.wait()
        return 5

    async def both():
        a, b = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(fetch(a, b), fetch(b, a))

    assert inspect.iscoroutinefunction(fetch)
    assert asyncio.run(both()) == [5, 5]
    markers = monitored.reader.read()
    assert [m.kind for m in markers] == [RANGE_START, RANGE_START, RANGE_END, RANGE_END]
    handles = [m.value for m in markers]
    assert handles[0] != handles[1] and set(handles[:2]) == set(handles[2:])
    assert monitored.reader.name(markers[0].flag).split(layout.PLACE_SEPARATOR)[::2] == ["fetch", "fetch"]


def test_decorated_async_generators(monitored):
    @tuimon.phase("stream")
    async def stream():
        got = yield 1
        try:
            yield got
        except KeyError:
            yield "thrown"

    async def consume():
        running = stream()
        first = await running.asend(None)
        second = await running.asend("sent")
        third = await running.athrow(KeyError())
        rest = [item async for item in running]
        return [first, second, third, rest]

    assert asyncio.run(consume()) == [1, "sent", "thrown", []]
    assert kinds(monitored) == [RANGE_START, RANGE_END] * 4


def test_counters_in_names_do_not_fill_the_table(monitored):
    for i in range(30_000):
        with tuimon.phase(f"iteration {i}"):
            pass
    assert len(runtime._writer._names) <= 66
    assert len(runtime.names._ids) <= 70
    assert monitored()[-2][1][0] == "iteration #"
    with tuimon.phase("evaluate"):
        pass
    assert monitored()[0][1][0] == "evaluate"


def test_made_up_names_of_any_kind_are_bounded(monitored):
    for i in range(5000):
        tuimon.mark("".join(chr(97 + int(digit)) for digit in str(i)))
    assert len(runtime._writer._names) <= 1025
    assert monitored()[-1][1][0] == "(more names)"


class Unprintable:
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("name", "shown"),
    [(None, "None"), (7, "7"), ([1], "[1]"), (Unprintable(), "?"), ("a\x1fb", "a?b"), ("x" * 999, "x" * 200)],
)
def test_strange_names(monitored, name, shown):
    with tuimon.phase(name):
        pass
    assert monitored()[0][1][0] == shown


def test_an_error_inside_never_reaches_the_user(monitored, monkeypatch):
    def fail(name):
        raise RuntimeError("inside tuimon")

    monkeypatch.setattr(runtime._writer, "name_id", fail)
    with tuimon.phase("a"):
        tuimon.mark("b")
    assert [(kind, name) for kind, name in monitored()] == [
        (RANGE_PUSH, ["?"]),
        (MARK, ["?"]),
        (RANGE_POP, ["?"]),
    ]


def test_unmonitored_everything_works_and_nothing_is_written(unmonitored, monkeypatch):
    monkeypatch.setattr(runtime, "emit", lambda *arguments: pytest.fail("a marker without a ring"))

    @tuimon.phase("f")
    def double(x):
        return 2 * x

    @tuimon.phase("g")
    def generator():
        yield from range(3)

    with tuimon.phase("a") as entered:
        tuimon.mark("b")
        tuimon.step()
    assert isinstance(entered, tuimon.phase)
    assert double(2) == 4 and list(generator()) == [0, 1, 2]


def test_switched_off_a_decorator_gives_the_function_back(monkeypatch):
    monkeypatch.setenv("TUIMON_MARKERS", "0")
    assert tuimon.phase("f")(here) is here


def test_pickled_by_the_public_name():
    assert b"_tuimon_agent" not in pickle.dumps(tuimon.phase)
    assert pickle.loads(pickle.dumps(tuimon.phase)) is tuimon.phase


def test_under_tuimon_run_the_injected_copy_is_used(tmp_path):
    import os

    env = environment(tmp_path / "rings", path=os.pathsep.join([fake_torch(tmp_path), str(ROOT)]))
    script = """
import json, pickle, sys, tuimon
with tuimon.phase("before torch"):
    import torch
tuimon.mark("after")
from _tuimon_agent import runtime
from _tuimon_agent.ring.reader import RingReader
kinds = [marker.kind for marker in RingReader(runtime._writer.path).read()]
loaded = sorted(name for name in sys.modules if name.startswith("tuimon"))
print(json.dumps([kinds, loaded, pickle.loads(pickle.dumps(tuimon.phase)) is tuimon.phase]))
"""
    # the end of a range that began before there was a ring: the reader knows no such range
    assert said(python("-c", script, env=env)) == [[RANGE_POP, MARK], ["tuimon"], True]
