"""What ``make gpu-check`` prints of traces, memory, injected hooks and in-process stacks, from literal logs."""

import subprocess

import pytest

from bench.gpu import orders
from tests.session.records import header, stacks, steps
from tests.sources.log.literal_log import write
from tuimon.records import GpuTime, MemoryHistory, MemoryLine, Notice

LINE = MemoryLine("/x/bench/gpu/loop.py", 40, "main", "kept.append(", True, 5 << 20, 5, 1 << 20)


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Commands that end as ``ending`` says, and have written ``records`` into ``log``."""

    class Commands:
        log = tmp_path / "run.jsonl"
        records = ()
        ending = (0, "")

        def run(self, command):
            if self.records:
                write(self.log, header(), *self.records)
            return subprocess.CompletedProcess(command, self.ending[0], "", self.ending[1])

    found = Commands()
    monkeypatch.setattr(orders, "run_orders", found.run)
    return found


def test_the_line_that_keeps_memory_and_the_pause(commands):
    larger = MemoryLine("/x/bench/gpu/loop.py", 34, "main", "loss = ", True, 8 << 20, 8, 0)
    commands.records = (
        MemoryHistory(t=2.0, pid=7, trigger="asked", device="cuda:0", steps=5, live_bytes=1, most_bytes=1,
                      lines=[larger, LINE], pause_ms=12.5),
    )  # fmt: skip
    kept, pause = orders.remembered((), commands.log, "asked")
    assert "on cuda:0: loop.py:40 holds 5.24 MB" in kept.what
    assert (kept.measured.median, pause.measured.median) == (pytest.approx(1.048576), 12.5)


def test_hooks_that_came_in_are_counted_by_their_steps(commands):
    timed = GpuTime(t=2.0, pid=100, window_s=1.0, device=0, steps=8, total_ns=1, phases=[], leads=[])
    commands.records = (steps(1.0, {"forward": 1.0}, count=30), timed)
    commands.ending = (0, "tuimon: hooks brought into process 100 in 0.2 s\n[tuimon] log")
    found, on_gpu = orders.brought_in(100, 1.0, commands.log)
    assert found.what == "attach --inject: steps (hooks brought into process 100 in 0.2 s)"
    assert (found.measured.median, on_gpu.measured.median) == (30, 8)


def test_stacks_of_py_spy_are_not_taken_for_those_of_the_agent(commands):
    commands.records = (stacks(1.0, ([0], 20)),)
    commands.ending = (0, "left")
    (absent,) = orders._sampled_by_itself(100, 1.0, commands.log)
    assert (absent.measured, absent.why_absent) == (None, "1 windows of py-spy's; exit code 0: left")


@pytest.mark.parametrize(
    "check",
    [
        lambda path: orders.traced(100, path),
        lambda path: orders.remembered((), path, "oom"),
        lambda path: orders.brought_in(100, 1.0, path),
    ],
)
def test_what_cannot_be_had_says_why(commands, check):
    commands.ending = (1, "tuimon: no gdb\n  install gdb")
    (absent,) = check(commands.log)
    assert (absent.measured, absent.why_absent) == (None, "exit code 1: tuimon: no gdb; install gdb")


def test_a_verdict_is_no_reason_and_an_error_of_the_log_is_one(commands):
    commands.records = (Notice(t=1.0, pid=0, source="memory", level="warning", message="no process trains yet"),)
    error = "torch.OutOfMemoryError: CUDA out of memory."
    said = ["[tuimon 0:03] 301 steps/s  LAUNCH-BOUND launches set the pace", error, "[tuimon] LAUNCH-BOUND: the pace"]
    commands.ending = (1, "\n".join(said))
    (absent,) = orders.remembered((), commands.log, "oom")
    assert absent.why_absent == f"exit code 1: {error}; no process trains yet"
