"""The calls of two steps that read or move tensors, counted by line; and that the program is left as it was."""

import ctypes
import inspect
import json
import os
import sys
import threading
import weakref
from _thread import get_ident
from types import SimpleNamespace

import pytest

from tests.agent.programs import ROOT
from tests.warm_torch import warm_python
from tuimon.agent import runtime
from tuimon.agent.control import calls, orders
from tuimon.agent.pace import pace
from tuimon.agent.ring import layout
from tuimon.agent.ring.control_words import Command, State
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.torch_compat.compilations import reading

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.trust]


@pytest.fixture(autouse=True)
def no_profile(monkeypatch):
    """Nothing else observes this process, and nothing was compiled in it; pytest's coverage would."""
    monkeypatch.setattr(reading, "newest", None)
    for name, value in (("thread", get_ident()), ("updates", 7)):
        monkeypatch.setattr(pace, name, value)
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.setprofile(None)
    sys.settrace(before)


class Counting:
    """An order under way; each call of ``step`` makes a step, which ends with a backward pass."""

    def __init__(self, channel, updates=1):
        self.channel = channel
        self.request = channel.order(Command.CALLS, updates)
        orders.attend()
        self.steps(nothing)

    def steps(self, *bodies, updates=1):
        for body in bodies:
            body()
            pace.updates += updates
            orders.attend()
        return self

    @property
    def state(self):
        self.request.poll()
        return self.request.answer.state

    @property
    def reason(self):
        assert self.state == State.REFUSED
        return self.channel.text(self.request.answer.text)

    @property
    def rows(self):
        """By name, and by line counted from the beginning of its function ``reads``."""
        assert self.state == State.DONE
        rows = json.loads(self.channel.text(self.request.answer.text))
        assert {file for _, file, _, _ in rows} <= {__file__}
        return {(name, line - inspect.getsourcelines(reads)[1]): calls for name, _, line, calls in rows}


@pytest.fixture
def counting(own_channel):
    yield lambda updates=1: Counting(own_channel, updates)
    orders.end_tasks()


def nothing():
    """A step without any call."""


def reads(losses=40):
    tensor, parameter, number = torch.ones(3), torch.nn.Parameter(torch.ones(3)), 1.5
    for loss in [tensor.sum()] * losses:
        loss.item()
        parameter.cpu(), tensor.to("cpu")
    [tensor.tolist() for _ in range(7)]
    for _ in range(2):
        torch.nn.Linear(2, 3).to(torch.float64)  # in torch, for its two parameters
    number.is_integer(), tensor.item if losses < 0 else None, [].copy()
    tensor.numpy()


ROWS = {("item", 3): 40, ("cpu", 4): 40, ("to", 4): 40, ("tolist", 5): 7, ("to", 7): 4}


def test_calls_are_counted_by_the_users_line(counting):
    found = counting().steps(reads)
    assert sys.getprofile() is not None
    assert found.steps(reads).rows == ROWS
    assert sys.getprofile() is None


def test_work_of_one_step_of_both_is_no_repetition(counting):
    found = counting().steps(lambda: reads(90), lambda: (reads(3), torch.ones(1).item(), reads(3)))
    assert found.rows == {**ROWS, **dict.fromkeys([("item", 3), ("cpu", 4), ("to", 4)], 6), ("tolist", 5): 7}


def test_a_step_has_as_many_updates_as_it_is_told(counting):
    found = counting(updates=2)
    found.steps(nothing, lambda: reads(5), updates=0)  # gradients are accumulated
    found.steps(*[lambda: reads(5)] * 3)
    assert found.state == State.WORKING
    assert found.steps(lambda: reads(5)).rows[("item", 3)] == 10


def test_passes_of_another_thread_and_without_an_optimizer_are_no_steps(own_channel, monkeypatch):
    monkeypatch.setattr(pace, "thread", 0)
    found = Counting(own_channel).steps(reads, reads)
    assert (found.state, sys.getprofile()) == (State.WORKING, None)
    orders.end_tasks()


def test_the_steps_are_in_no_figure_of_the_monitors(counting):
    counting().steps(reads, reads)
    runtime.writer().flush()
    reader = RingReader(runtime.writer().path)
    kinds = [each.kind for each in reader.read()]
    reader.close()
    assert kinds == [layout.PROFILER_ON, layout.PROFILER_OFF]


def test_variables_end_as_ever_and_a_copy_of_them_stays_as_it_was(counting):
    """Frames must not hold what the program has let go of, nor write back to it."""
    found, begun, kept = counting(), [], []

    def trains(steps=2):
        copied = locals()
        before = dict(copied)
        for _ in range(steps):
            value = torch.ones(9)
            begun.append(weakref.ref(value))
            value.tolist()
            del value
            found.steps(nothing)
        kept.append(copied == before)

    trains()
    assert found.state == State.DONE
    assert kept == [True] and [each() for each in begun] == [None, None]


def many():
    for _ in range(60_000):
        len(())


def test_too_many_calls_are_not_followed_to_their_end(counting):
    found = counting().steps(lambda: (many(), many()))
    assert sys.getprofile() is None
    assert "too many calls" in found.reason


def test_steps_that_take_too_long_are_said_to(counting, monkeypatch):
    found = counting()
    monkeypatch.setattr(calls, "monotonic_ns", lambda: 1 << 62)
    assert "take too long" in found.steps(many).reason and sys.getprofile() is None


def test_an_answer_has_the_lines_that_fit(counting, monkeypatch):
    """The ring keeps 1,024 bytes: some files have long names."""
    long = SimpleNamespace(dumps=lambda row: json.dumps([row[0], "x" * 300, *row[2:]]))
    monkeypatch.setattr(calls, "json", long)
    found = counting().steps(reads, reads)
    assert found.state == State.DONE
    rows = json.loads(found.channel.text(found.request.answer.text))
    assert [row[3] for row in rows] == [40, 40, 40]


def test_a_step_that_raises_leaves_nothing_behind(counting):
    def fails():
        raise KeyError("the program's own")

    found = counting()
    with pytest.raises(KeyError, match="own"):
        found.steps(fails)
    many()
    many()
    assert sys.getprofile() is None
    assert "too many calls" in found.steps(nothing).reason


def test_an_exception_that_arrives_in_our_function_is_the_programs(counting):
    def interrupted():
        raises = ctypes.py_object(InterruptedError)  # at the next Python: in our function, which sees ``any`` return
        any(map(ctypes.pythonapi.PyThreadState_SetAsyncExc, [ctypes.c_ulong(get_ident())], [raises]))

    found = counting()
    with pytest.raises(InterruptedError):
        found.steps(interrupted)
    assert sys.getprofile() is None  # Python has removed it
    assert "interrupted" in found.steps(nothing).reason


def own_profile(frame, event, argument):
    """A profile function of the program's."""


@pytest.mark.parametrize("observe", [sys.setprofile, sys.settrace])
def test_who_observes_the_program_goes_first(own_channel, observe):
    observe(own_profile)
    found = Counting(own_channel).steps(nothing, nothing)
    assert sys.getprofile() is (own_profile if observe is sys.setprofile else None)
    sys.settrace(None)
    assert "profiled, traced or debugged" in found.reason


def test_a_profile_that_the_program_begins_meanwhile_is_left_alone(counting):
    found = counting().steps(lambda: sys.setprofile(own_profile))
    assert sys.getprofile() is own_profile
    assert "interrupted" in found.reason


def test_a_profile_that_the_program_puts_back_later_ends_by_itself(counting):
    kept = []
    counting().steps(lambda: kept.append(sys.getprofile()), nothing)
    assert sys.getprofile() is None
    sys.setprofile(kept[0])
    nothing()
    assert sys.getprofile() is None


def test_a_program_with_torch_compile_is_not_counted(counting, monkeypatch):
    monkeypatch.setattr(reading, "newest", object())
    assert "torch.compile" in counting().steps(reads, reads).reason


def test_an_order_that_is_taken_back_ends_it(counting):
    found = counting()
    assert sys.getprofile() is not None
    found.request.cancel()
    orders.attend()
    assert sys.getprofile() is None


def test_in_another_thread_it_is_ended_at_the_next_call(counting):
    counting()
    thread = threading.Thread(target=orders.end_tasks)
    thread.start()
    thread.join()
    nothing()
    assert sys.getprofile() is None


def test_a_forked_child_is_not_followed(hooked, monkeypatch):
    from tuimon.sources.control_channel import open_channel

    monkeypatch.setattr(pace, "thread", get_ident())
    with open_channel(os.getpid()) as channel:
        Counting(channel)
        assert sys.getprofile() is not None
        pid = os.fork()
        if not pid:
            os._exit(sys.getprofile() is not None)
        assert os.waitpid(pid, 0)[1] == 0
        orders.end_tasks()


_COMPILED = """
import json, sys
from types import SimpleNamespace
import torch, torch._dynamo
from torch._dynamo.testing import CompileCounter
from _thread import get_ident
from tuimon.agent.control import calls
from tuimon.agent.pace import pace

torch.manual_seed(2)
model, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)), torch.randn(4, 8)
counter, said = CompileCounter(), []
compiled = torch.compile(model, backend=counter, fullgraph=True)
task = SimpleNamespace(argument=1, is_over=False, finish=lambda *told: said.append(told), refuse=said.append)
pace.thread = get_ident()
work = calls.begin(task)
pace.updates += 1
work.step()
assert sys.getprofile() is not None
results = []
for _ in range(3):  # compiled first in a step that is counted
    results.append(compiled(x).sum().item())
    pace.updates += 1
    if not said:
        work.step()
print(json.dumps([counter.frame_count, results == [model(x).sum().item()] * 3, sys.getprofile() is None, len(said)]))
"""


def test_a_model_that_is_compiled_meanwhile_is_compiled_once_and_computes_the_same(tmp_path):
    out = warm_python("-c", _COMPILED, env={"PYTHONPATH": str(ROOT), "TUIMON_RING_DIR": str(tmp_path)})
    assert json.loads(out.stdout.splitlines()[-1]) == [1, True, True, 1]
