"""tuimon.phase, mark, step: real no-ops when not monitored, markers when they are; the variables beside them."""

import copy
import inspect
import os
import pickle

import pytest

import tuimon
from tests.agent.programs import ROOT, environment, fake_torch, printed_json, python
from tuimon.agent import api, runtime
from tuimon.agent.outside import variable
from tuimon.agent.ring import layout


@pytest.fixture
def unmonitored(monkeypatch):
    api.connect(None, None)
    monkeypatch.setattr(runtime, "on", False)


def here():
    return inspect.currentframe().f_back.f_lineno


def test_a_phase_carries_its_place(monitored):
    with tuimon.phase("augment"):
        line = here() - 1
    (push, name), (pop, _) = monitored()
    assert (push, pop) == (layout.RANGE_PUSH, layout.RANGE_POP)
    assert name == ["augment", __file__, "test_a_phase_carries_its_place", str(line)]


def test_a_step_carries_its_samples_and_tokens(monitored):
    tuimon.step(samples=32)
    tuimon.step(tokens=4096, samples=8)
    tuimon.step(samples=-1, tokens=3.5)
    found = monitored.reader.read()
    markers = [(marker.kind, marker.flag, marker.value) for marker in found if marker.kind != layout.OPTIMIZER_MADE]
    assert markers == [
        (layout.STEP_SIZE, layout.STEP_SAMPLES, 32), (layout.STEP, 0, 0),
        (layout.STEP_SIZE, layout.STEP_SAMPLES, 8), (layout.STEP_SIZE, layout.STEP_TOKENS, 4096), (layout.STEP, 0, 0),
        (layout.STEP, 0, 0),
    ]  # fmt: skip


def test_nested_reentered_and_left_by_an_exception(monitored):
    outer = tuimon.phase("outer")
    with pytest.raises(ZeroDivisionError), outer, tuimon.phase("inner"), outer:
        1 / 0  # noqa: B018
    assert [kind for kind, _ in monitored()] == [layout.RANGE_PUSH] * 3 + [layout.RANGE_POP] * 3


def test_an_error_inside_never_reaches_the_user(monitored, monkeypatch):
    def fail(name):
        raise RuntimeError("inside tuimon")

    monkeypatch.setattr(runtime.writer(), "name_id", fail)
    with tuimon.phase("a"):
        tuimon.mark("b")
    assert [(kind, name) for kind, name in monitored()] == [
        (layout.RANGE_PUSH, ["?"]),
        (layout.MARK, ["?"]),
        (layout.RANGE_POP, ["?"]),
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


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_phase_can_be_pickled_and_copied(protocol):
    made = tuimon.phase("augment")
    for again in (pickle.loads(pickle.dumps(made, protocol)), copy.copy(made), copy.deepcopy(made)):
        assert type(again) is tuimon.phase and pickle.dumps(again) == pickle.dumps(made)


def test_under_tuimon_run_the_injected_copy_is_used(tmp_path):
    env = environment(tmp_path / "rings", path=os.pathsep.join([fake_torch(tmp_path), str(ROOT)]))
    script = """
import gc, json, pickle, sys, tuimon
gc.disable()  # a pause would be a marker
with tuimon.phase("before torch"):
    import torch
tuimon.mark("after")
from _tuimon_agent import runtime
from _tuimon_agent.ring.reader import RingReader
kinds = [marker.kind for marker in RingReader(runtime.writer().path).read()]
loaded = sorted(name for name in sys.modules if name.startswith("tuimon"))
print(json.dumps([kinds, loaded, pickle.loads(pickle.dumps(tuimon.phase)) is tuimon.phase]))
"""
    # the end of a range that began before there was a ring: the reader knows no such range
    assert printed_json(python("-c", script, env=env)) == [[layout.RANGE_POP, layout.MARK], ["tuimon"], True]


def test_the_same_as_os_environ_has(monkeypatch):
    monkeypatch.delenv("TUIMON_TEST", raising=False)
    assert variable("TUIMON_TEST") is None
    for value in ("", "1", "caf\u00e9", "\udcff"):
        monkeypatch.setenv("TUIMON_TEST", value)
        assert variable("TUIMON_TEST") == value


def test_a_program_may_replace_os_environ(monkeypatch):
    monkeypatch.setattr(os, "environ", {"TUIMON_TEST": "theirs"})
    assert (variable("TUIMON_TEST"), variable("TUIMON_OTHER")) == ("theirs", None)
