"""Traces of torch.profiler that a monitor orders, and what pauses them."""

import json
import os
import time
import types

import pytest

from tests.agent.programs import as_agents
from tuimon.agent.control import trace as command
from tuimon.agent.control.sample import CannotRead
from tuimon.agent.ring import layout
from tuimon.agent.ring.control_words import TRACE_HELD_BIT
from tuimon.agent.ring.reader import RingReader
from tuimon.errors import TuimonError
from tuimon.sources.tracing import TraceOrder
from tuimon.trace.events import TakenBy
from tuimon.trace.reader import read_trace

pytestmark = pytest.mark.torch


class Training:
    """A loop over a DataLoader."""

    def __init__(self, torch):
        torch.manual_seed(3)
        self.model = torch.nn.Linear(6, 6)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.data = torch.utils.data.DataLoader(torch.ones(4000, 6), batch_size=4)
        self.batches = iter(self.data)

    def step(self):
        loss = self.model(next(self.batches)).square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def run(self, taking, steps=40):
        """Until the trace is over; returns the number of steps made."""
        for number in range(steps):
            self.step()
            taking.poll()
            if taking.is_over:
                return number
        return steps


@pytest.fixture
def torch(hooked):
    import torch

    return torch


@pytest.fixture
def training(torch):
    made = Training(torch)
    for _ in range(4):
        made.step()
    return made


@pytest.fixture(autouse=True)
def nothing_left(request, hooked):
    yield
    import torch

    assert not torch.autograd._profiler_enabled()
    assert hooked.emit == hooked.writer().emit
    for name in ("_prepare_profiler", "_enable_profiler"):
        assert getattr(torch.autograd.profiler, name).__name__ != "tuimon_give_way"
    assert not [name for name in os.listdir(os.path.dirname(hooked.writer().path)) if name.endswith(".trace")]


def traced_by(training, wanted, held_ms=60_000, **more):
    """The order for a trace of so many steps, once these are made."""
    taking = TraceOrder(os.getpid(), wanted, held_ms)
    training.run(taking, **more)
    return taking


def written(taking, tmp_path):
    """The trace, once it is written."""
    return taking.write(str(tmp_path / "t.json.gz"), TakenBy(command="train.py"))


def refusal(training, tmp_path):
    """Why a trace of one step is none."""
    return reason_of(traced_by(training, 1), tmp_path)


def reason_of(taking, tmp_path):
    with pytest.raises(TuimonError) as error:
        written(taking, tmp_path)
    assert os.listdir(tmp_path) in (["rings"], [])
    return error.value.message


def test_whole_steps_are_traced(training, monkeypatch, tmp_path):
    """However long a busy machine takes to stop the profiler, all steps fit in what the training may be held up."""
    monkeypatch.setattr(command, "PLANNED", 1_000)
    summary = written(traced_by(training, 3), tmp_path)
    trace = summary.trace
    assert (trace.taken.steps, trace.taken.wanted) == (3, 3)
    assert trace.taken.stop_ms > 0
    rows = {(row.name, row.phase): row for row in summary.operators}
    assert [step.name for step in trace.steps.all] == ["step 1", "step 2", "step 3"]
    assert rows["aten::linear", "forward"].count == 3
    assert rows["aten::stack", "data"].count == 3
    assert ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "backward") in rows
    assert {phase.name for phase in trace.phases.all} == {"data", "forward", "backward", "optimizer", "other"}
    assert os.stat(tmp_path / "t.json.gz").st_mode & 0o777 == 0o600


def test_the_monitor_is_told_which_steps_are_slowed(training, hooked, tmp_path):
    written(traced_by(training, 3), tmp_path)
    reader = RingReader(hooked.writer().path)
    seen = reader.read()
    reader.close()
    switches = (layout.PROFILER_ON, layout.PROFILER_OFF)
    flags = [marker.flag for marker in seen if marker.kind in switches]
    assert flags[-2:] == [layout.FOR_TRACE, 0] and flags[:-2] in ([0, 0], [0, 0] * 2)
    on, off = [at for at, marker in enumerate(seen) if marker.kind in switches][-2:]
    assert sum(marker.kind == layout.BACKWARD_END for marker in seen[on:off]) == 3


def test_lines_of_the_program_stand_beside_what_was_traced(training, tmp_path):
    def nap():
        time.sleep(0.02)

    def step():
        Training.step(training)
        nap()

    training.step = step
    written(traced_by(training, 3), tmp_path)
    lines = read_trace(str(tmp_path / "t.json.gz")).lines.all
    napped_ns = sum(line.length_ns for line in lines if line.name.startswith("nap() test_trace.py:"))
    assert napped_ns > sum(line.length_ns for line in lines) / 4
    assert not [name for name in os.listdir(tmp_path / "rings") if name.endswith(".lines")]


def test_results_are_those_of_the_plain_run(training, torch, tmp_path):
    taking = TraceOrder(os.getpid(), 2, 60_000)
    made = training.run(taking) + 1
    written(taking, tmp_path)
    plain = Training(torch)
    for _ in range(4 + made):
        plain.step()
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, training.model.state_dict()[name])


def test_a_short_pause_allows_few_steps(training, tmp_path):
    taken = written(traced_by(training, 9, held_ms=1), tmp_path).trace.taken
    assert (taken.steps, taken.wanted) == (1, 9)


def test_not_two_at_once(training):
    taking = TraceOrder(os.getpid(), 3)
    with pytest.raises(TuimonError, match="another tuimon"):
        TraceOrder(os.getpid(), 3)
    taking.close()
    training.step()


def test_refused_while_the_program_profiles(training, torch, tmp_path):
    with torch.autograd.profiler.profile():
        assert "a profiler of its own" in refusal(training, tmp_path)


def test_refused_while_a_profiler_of_the_program_is_ready(training, torch, tmp_path):
    own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    own.prepare_trace()
    assert "torch.profiler of its own ready" in refusal(training, tmp_path)
    own.start_trace()
    own.stop_trace()


def test_a_profiler_that_the_program_starts_goes_first(training, torch, tmp_path):
    taking = traced_by(training, 50, steps=8)
    assert torch.autograd._profiler_enabled()
    with torch.autograd.profiler.profile() as own:
        training.step()
    taking.poll()
    assert any(event.name == "aten::linear" for event in own.function_events)
    assert "a profiler of its own" in reason_of(taking, tmp_path)


@pytest.mark.parametrize("removed", [False, True])
def test_withdrawn_in_the_middle(training, hooked, torch, removed):
    """By who ordered it, or with all hooks."""
    taking = traced_by(training, 50, steps=8)
    assert torch.autograd._profiler_enabled()
    if removed:
        hooked.end_orders()
        assert not torch.autograd._profiler_enabled()
    taking.close()
    training.step()


def no_cupti(self):
    raise RuntimeError("no CUPTI")


def has_room(*answers):
    """Whether a disk has room, each time that it is asked; at last not."""
    left = iter(answers)
    return lambda folder: next(left, False)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"LONG_STEP": 0, "MIN_EVALUATION_NS": 0}, "far longer"),  # a step without end
        ({"file_size_limit": lambda: 4 << 20}, "no room"),
        ({"disk_has_room": has_room()}, "no room"),
        ({"disk_has_room": has_room(True)}, "no room"),
        ({"Profiler.start": as_agents(no_cupti)}, "no CUPTI"),
    ],
)
def test_what_prevents_a_trace_is_its_answer(training, tmp_path, monkeypatch, changes, reason):
    for name, value in changes.items():
        monkeypatch.setattr(f"{command.__name__}.{name}", value)
    assert reason in refusal(training, tmp_path)


def test_an_exception_of_the_programs_ends_the_trace(training, tmp_path, monkeypatch):
    """As of a signal handler: the program gets it, and the profiler is off from the next step on."""

    def raising(self):
        raise InterruptedError("a signal")

    taking = TraceOrder(os.getpid(), 50, 60_000)
    with monkeypatch.context() as patch:
        patch.setattr(command.Profiler, "stop", raising)
        with pytest.raises(InterruptedError, match="a signal"):
            training.run(taking)
    training.run(taking)
    assert "interrupted" in reason_of(taking, tmp_path)


def test_a_disk_that_fills_up_meanwhile(training, tmp_path, monkeypatch):
    monkeypatch.setattr(command.os, "access", lambda path, mode: not path.endswith(".trace"))
    taking = traced_by(training, 1)
    monkeypatch.undo()
    assert "could not be written" in str(taking.request.channel.text(taking.request.answer.text))
    path = taking.request.channel.path + ".trace"
    taking.close()
    os.unlink(path)


def test_a_damaged_answer(training, tmp_path):
    taking = traced_by(training, 1)
    taking.request.channel.text = lambda number: json.dumps({"steps": -4})
    assert "cannot be understood" in reason_of(taking, tmp_path)


MS = 1_000_000
STEP = (layout.BACKWARD_BEGIN, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END)


def no_windows():
    raise CannotRead


@pytest.fixture
def traced(monkeypatch, tmp_path):
    """Traces a loop; ``stop_ms(number)``: what stopping costs of a step. Gives what the agent tells."""

    def trace(argument, stop_ms, is_using_gpu=False):
        clock, done = types.SimpleNamespace(now_ns=10**12), []  # time passes when something is done
        clock.monotonic_ns = clock.time_ns = lambda: clock.now_ns

        class Profiler:
            on, cost_ms, uses_gpu = False, 0.0, is_using_gpu

            def __init__(self, torch):
                profilers.append(self)

            def start(self):
                self.on, self.cost_ms = True, 0.0

            def stop(self):
                self.on = False
                clock.now_ns += round(self.cost_ms * MS)
                return self

            def save(self, path):
                clock.now_ns += round(self.cost_ms * command.AFTER_STOP * MS)
                open(path, "w").close()

        profilers = []
        changes = {"time": clock, "Profiler": Profiler, "safe_window": no_windows, "disk_has_room": lambda folder: True}
        changes |= dict.fromkeys(("stream_event", "is_capturing"), lambda torch: None)
        for name, value in changes.items():
            monkeypatch.setattr(command, name, value)
        writer = types.SimpleNamespace(path=str(tmp_path / "1-1.ring"), emit=lambda *_: None)
        task = types.SimpleNamespace(
            argument=argument, is_wanted=lambda: True, report=int, finish=lambda steps, text: done.append(text)
        )
        tracing = command.Tracing(task, None, writer)
        (profiler,) = profilers
        tracing.see(layout.BACKWARD_END)
        for number in range(2000):
            for kind in STEP:
                clock.now_ns += MS
                profiler.cost_ms += stop_ms(number) * profiler.on * (kind == layout.BACKWARD_END)
                tracing.see(kind)
            if done:
                return json.loads(done[0])
        raise AssertionError("no end")

    return trace


def test_steps_that_are_a_quarter_heavier_than_the_one_that_was_tried_keep_the_limit(traced):
    told = traced(100 | 250 << TRACE_HELD_BIT, lambda number: 10.0 if number < 4 else 12.5)
    assert told["limit"] == 250 and told["wanted"] == 100
    assert 100 < told["held"] + told["trial"] <= 250
    assert told["steps"] >= 5


def test_steps_that_may_pass_until_the_gpu_is_done_are_planned_for(traced):
    argument = 100 | 250 << TRACE_HELD_BIT
    without, with_gpu = (traced(argument, lambda number: 10.0, is_using_gpu=uses)["steps"] for uses in (False, True))
    assert with_gpu == without - command.GPU_STEPS
