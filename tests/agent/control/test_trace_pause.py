"""How long a trace holds a training up, of a profiler whose cost is known."""

import json
import types

import pytest

from tuimon.agent import runtime
from tuimon.agent.control import trace as command
from tuimon.agent.control.stack_windows import CannotRead
from tuimon.agent.ring.control_words import TRACE_HELD_BIT
from tuimon.agent.ring.layout import BACKWARD_BEGIN, BACKWARD_END, OPTIMIZER_BEGIN, OPTIMIZER_END

MS = 1_000_000
STEP = (BACKWARD_BEGIN, BACKWARD_END, OPTIMIZER_BEGIN, OPTIMIZER_END)


class Clock:
    """Time that passes when something is done."""

    def __init__(self):
        self.now_ns = 10**12

    def monotonic_ns(self):
        return self.now_ns

    def time_ns(self):
        return self.now_ns


def _no_windows():
    raise CannotRead


@pytest.fixture
def traced(monkeypatch, tmp_path):
    """Traces a loop; ``stop_ms(number)``: what stopping costs of a step. Gives what the agent tells."""

    def trace(argument, stop_ms, uses_gpu=False):
        clock, done = Clock(), []

        class Profiler:
            def __init__(self, torch):
                self.uses_gpu = uses_gpu
                self.steps = 0.0

            def start(self):
                made.on, made.cost_ms = True, 0.0

            def stop(self):
                made.on = False
                clock.now_ns += round(made.cost_ms * MS)
                return types.SimpleNamespace(save=save)

        def save(path):
            clock.now_ns += round(made.cost_ms * command.AFTER_STOP * MS)
            open(path, "w").close()

        made = types.SimpleNamespace(on=False, cost_ms=0.0)
        monkeypatch.setattr(command, "time", clock)
        monkeypatch.setattr(command, "Profiler", Profiler)
        monkeypatch.setattr(command, "Guard", lambda *_: types.SimpleNamespace(set=int, lift=int))
        monkeypatch.setattr(command, "safe_window", _no_windows)
        monkeypatch.setattr(command, "has_room", lambda folder: True)
        monkeypatch.setattr(command, "stream_event", lambda torch: None)
        monkeypatch.setattr(command, "is_capturing", lambda torch: False)
        monkeypatch.setattr(runtime, "emit", runtime.emit)
        writer = types.SimpleNamespace(path=str(tmp_path / "1-1.ring"), emit=lambda *_: None)
        task = types.SimpleNamespace(
            argument=argument, is_wanted=lambda: True, report=int, finish=lambda steps, text: done.append(text)
        )
        tracing = command.Tracing(task, None, writer)
        tracing.see(BACKWARD_END)
        for number in range(2000):
            for kind in STEP:
                clock.now_ns += MS
                made.cost_ms += stop_ms(number) * made.on * (kind == BACKWARD_END)
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
    without, with_gpu = (traced(argument, lambda number: 10.0, uses_gpu=uses)["steps"] for uses in (False, True))
    assert with_gpu == without - command.GPU_STEPS
