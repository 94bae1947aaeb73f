"""Scripts on frameworks: valid, the same for a seed, with a truth that adds up. They run where their framework is."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.agent.programs import environment
from tests.random_loops.frameworks.catalogue import FRAMEWORKS
from tests.random_loops.frameworks.plan import draw_on
from tests.random_loops.plan import HOMES, INPUT_PLACES, healthy
from tests.random_loops.script import module_of, script_of
from tests.random_loops.works import CAUSE
from tests.truth.loops import write
from tests.truth.running import has_begun
from tests.warm_torch import warm_python

EACH = pytest.mark.parametrize("name", sorted(FRAMEWORKS))


@EACH
def test_every_script_compiles_and_is_the_same_for_a_seed(name: str) -> None:
    texts = [script_of(draw_on(name, seed)) + module_of(draw_on(name, seed)) for seed in range(60)]
    for text in texts:
        ast.parse(text)
    assert texts[:10] == [script_of(draw_on(name, seed)) + module_of(draw_on(name, seed)) for seed in range(10)]
    assert len(set(texts)) == len(texts)


@EACH
def test_all_places_and_homes_of_work_are_drawn_and_each_piece_is_called(name: str) -> None:
    drawn = [draw_on(name, seed) for seed in range(300)]
    pieces = [piece for plan in drawn for piece in plan.pieces]
    framework = FRAMEWORKS[name]
    assert {piece.place for piece in pieces} == {*framework.input_places, *framework.side_places, "model"}
    assert {piece.home for piece in pieces} == set(HOMES)
    for plan in drawn[:60]:
        text = script_of(plan)
        for piece in plan.pieces:
            assert f'without == "{piece.name}"' in text
            assert f"{CAUSE}{piece.name}" in text + module_of(plan)


@EACH
def test_a_healthy_one_has_no_slow_work(name: str) -> None:
    for seed in range(60):
        well = healthy(draw_on(name, seed))
        assert all(piece.name == "tiny" for piece in well.pieces)
        ast.parse(script_of(well))


@EACH
def test_workers_that_compute_leave_a_core_to_the_training(name: str) -> None:
    for plan in (draw_on(name, seed) for seed in range(300)):
        assert plan.workers == 0 or plan.threads == 1
        computing = [p for p in plan.pieces if p.place in INPUT_PLACES and p.name != "tiny" and p.work != "remote"]
        assert plan.workers <= 2 or not computing


def test_any_framework_is_drawn_with_the_same_choices_as_if_it_were_asked_for() -> None:
    drawn = [draw_on("any", seed) for seed in range(60)]
    assert {plan.shape for plan in drawn} == set(FRAMEWORKS)
    assert drawn == [draw_on(plan.shape, plan.seed) for plan in drawn]


@pytest.mark.torch
@EACH
def test_one_tells_a_truth_that_adds_up(name: str, tmp_path: Path) -> None:
    if not FRAMEWORKS[name].installed:
        pytest.skip(f"{name} is not installed")
    seed = next(s for s in range(100) if draw_on(name, s).setup_s < 1 and draw_on(name, s).workers == 0)
    done = warm_python(str(write(draw_on(name, seed), tmp_path)), "--seconds=0.3", env=environment(None))
    assert done.returncode == 0, done.stderr
    assert has_begun(done.stdout)
    truth = json.loads('{"steps"' + done.stdout.partition('{"steps"')[2].splitlines()[0])
    assert_adds_up(truth)


#: What a framework does in a step of two micro-batches, with an evaluation and side work after it.
BY_HOOKS = """
import sys
sys.argv = ["script.py", "--seconds=0"]
import torch
from loop_watch import LoopWatch
from torch.utils.data import DataLoader, TensorDataset
watch = LoopWatch(0)
model = torch.nn.Linear(8, 8)
watch.follow(model)
optimizer = torch.optim.SGD(model.parameters())
rows, held = TensorDataset(torch.randn(60, 8)), TensorDataset(torch.randn(4, 8))
held.validates = True
goes_on = True
while goes_on:
    for number, (x,) in enumerate(DataLoader(rows, batch_size=4)):
        model(x).square().mean().backward()
        if number % 2:
            optimizer.step()
            for (x,) in DataLoader(held):
                model(x)
            watch.lap("other", "in evaluation")
            watch.evaluated()
            watch.lap("other", "side")
        goes_on = watch.step()
        if not goes_on:
            break
watch.tell()
"""


@pytest.mark.torch
def test_torchs_hooks_tell_the_parts_of_a_loop_that_is_not_the_scripts_own(tmp_path: Path) -> None:
    script = write(draw_on("lightning", 0), tmp_path).with_name("by_hooks.py")
    script.write_text(BY_HOOKS)
    done = warm_python(str(script), env=environment(None))
    assert done.returncode == 0, done.stderr
    truth = json.loads(done.stdout.splitlines()[-1])
    assert truth["steps"] == 5  # three that warm up, and at least two
    assert set(truth["shares"]) == {"data", "forward", "backward", "optimizer", "other", "eval"}
    assert all(share > 0 for share in truth["shares"].values())
    assert set(truth["pieces"]) == {"side"} and set(truth["in_evaluation"]) == {"in evaluation"}
    assert_adds_up(truth)


def assert_adds_up(truth: dict[str, dict[str, float]]) -> None:
    shares = truth["shares"]
    assert sum(share for part, share in shares.items() if part != "eval") == pytest.approx(1)
    assert sum(truth["pieces"].values()) <= shares["other"] + 1e-9
    assert sum(truth["in_model"].values()) <= shares["forward"] + 1e-9
    assert sum(truth["in_evaluation"].values()) <= shares.get("eval", 0.0) + 1e-9
