"""Calls that a step repeats, from a training on the CPU to the verdict."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.command import running, tuimon
from tests.cli.watched import recorded
from tests.waiting import until
from tuimon.records import StepCalls

pytestmark = pytest.mark.torch

TRAINING = """
import os, sys, torch

torch.set_num_threads(1)
model = torch.nn.Linear(64, 40)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def log(losses):
    total = 0.0
    for loss in losses:
        total += loss.sort()[0].median().item()
    return total


for batch in torch.utils.data.DataLoader(torch.randn(10**7, 1).expand(-1, 64), batch_size=16):
    losses = model(batch).square().mean(0)
    optimizer.zero_grad()
    losses.sum().backward()
    optimizer.step()
    log(losses.detach().unbind())
    assert sys.getprofile() is None or not os.path.exists("counted")
    if os.path.exists("go"):
        break
"""
LINE = 1 + TRAINING.splitlines().index("        total += loss.sort()[0].median().item()")


def test_a_loop_that_reads_each_loss_is_counted_once_and_said(tmp_path: Path) -> None:
    script, log = tmp_path / "train.py", tmp_path / "run.jsonl"
    script.write_text(TRAINING)
    words = ("run", "--headless", "--no-gpu", "--log", str(log), "--", sys.executable, str(script))
    with running(*words, cwd=tmp_path) as process:
        until(lambda: any(isinstance(record, StepCalls) for record in recorded(log)))
        (tmp_path / "counted").touch()
        until(lambda: len(recorded(log)) > 20)
        (tmp_path / "go").touch()
        assert process.wait(60) == 0
    (counted,) = (record for record in recorded(log) if isinstance(record, StepCalls))
    assert [(each.name, each.file, each.line, each.calls) for each in counted.lines] == [
        ("item", str(script), LINE, 40)
    ]
    report = json.loads(tuimon("report", "--format", "json", str(log), cwd=tmp_path).stdout)
    (found,) = (each for each in report["findings"] if each["rule"] == "side_work")
    assert (found["where"][0]["line"], found["evidence"]["item_calls_per_step"]) == (LINE, 40)
