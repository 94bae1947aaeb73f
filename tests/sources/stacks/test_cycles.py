"""Steps a second from the order of samples: literal windows, and a real loop with slow steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.session.records import process as process_record
from tests.sources.programs import running
from tests.sources.stacks.sampling import reading, trainer
from tuimon.session.session import Session
from tuimon.sources.stacks.pyspy import output

GRAPH = "/v/lib/python3.11/site-packages/torch/autograd/graph.py"
ADAM = "/v/lib/python3.11/site-packages/torch/optim/adam.py"
STACKS = {".": [0], "B": [0, 1], "U": [0, 2]}
LOOP = """
import sys, time
import torch
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(0.25)
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.25)
        return grad
weight = torch.ones(1, requires_grad=True)
print("up", flush=True)
while True:
    Slow.apply(weight).sum().backward()
"""


def cycles(pattern: str, other: str = "") -> int | None:
    """``B``: a sample in backward, ``U``: in an update, ``.``: elsewhere; ``other``: of another thread."""
    return window(pattern, other).cycles


def window(pattern: str, other: str) -> output.WindowSamples:
    names = [
        {"name": "main", "file": "/t.py", "line": 1},
        {"name": "_engine_run_backward", "file": GRAPH, "line": 9},
        {"name": "step", "file": ADAM, "line": 9},
    ]
    profiles = [
        {"name": name, "samples": [STACKS[mark] for mark in marks]}
        for name, marks in (('Thread 42 "MainThread"', pattern), ('Thread 43 "trainer"', other))
        if marks or name.startswith("Thread 42")
    ]
    raw = json.dumps({"profiles": profiles, "shared": {"frames": names}}).encode()
    return output.parse_speedscope(raw, 42)


@pytest.mark.parametrize(
    ("pattern", "entries"),
    [
        ("....BBBB....BBBB....", 2),
        ("BBBBBB......", 0),  # where it was entered nobody saw
        ("......", 0),
        (".....BBBBB", 1),
        ("..B..B..B", None),  # too far apart: more may lie between
        ("BBBBBB.BBBBBB.BBBBB", None),
        ("", None),
        ("....UUUU....UUUU....", 2),  # backward was too short to be seen
        ("....U...", None),
        ("....BBBUUUU....BBBUUUU....", 2),
    ],
)
def test_entries_into_backward_or_else_updates(pattern: str, entries: int | None) -> None:
    assert cycles(pattern) == entries


def test_another_thread_counts_where_the_main_one_never_enters() -> None:
    training = "....BBBB....BBBB...."
    assert cycles("." * 20, training) == 2
    assert cycles(".....BBBBB..........", training) == 1
    assert [(thread.tid, thread.matters) for thread in window("." * 20, training).threads] == [(42, True), (43, True)]
    assert [thread.matters for thread in window(training, "." * 20).threads] == [True, False]


@pytest.mark.torch
def test_a_loop_of_two_steps_a_second(tmp_path: Path) -> None:
    with running(tmp_path, LOOP) as process, reading(trainer(process.pid), max_cpu_ratio=1.0, rate_hz=40) as reader:
        reader.until(lambda it: sum(r.window_s for r in it.stacks if r.cycles is not None) > 6, "six seconds")
        session = Session()
        session.add(process_record(process.pid, markers=False))
        for record in reader.records:
            session.add(record)
        steps = session.over("recent").steps(process.pid)
        assert steps is not None
        assert steps.estimated
        assert steps.per_second == pytest.approx(2.0, rel=0.3)  # 12 entries, give or take one at either end
