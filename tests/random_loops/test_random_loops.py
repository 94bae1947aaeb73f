"""The generator itself: its scripts are valid, the same for a seed, and tell a truth that adds up."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from tests.agent.programs import environment
from tests.random_loops.plan import SHAPES, Piece, draw, healthy
from tests.random_loops.script import script_of
from tests.random_loops.works import SIDE_WORKS, WORKS, Work, function_of
from tests.truth.gain import EACH
from tests.truth.judging import of_cheaper_line, with_evaluation_as_side_work
from tests.truth.loops import Loops, accepted_parts, gains_of, is_most, may_be_first, measured_gains, write
from tests.truth.running import TRAINING, Truth
from tests.warm_torch import warm_python
from tuimon.diagnosis.finding import Finding, Fix

#: The first seed of each shape, with no long set-up.
OF_SHAPE = {
    shape: next(seed for seed in range(1000) if draw(seed).shape == shape and draw(seed).setup_s < 1)
    for shape in SHAPES
}


def _gains(
    shares: dict[str, float], pieces: dict[str, float], in_model: dict[str, float] | None = None
) -> dict[str, float]:
    return gains_of(Truth(100, 10.0, shares, pieces, in_model or {}))


def test_every_script_compiles_and_is_the_same_for_a_seed() -> None:
    texts = [script_of(draw(seed)) for seed in range(150)]
    for text in texts:
        ast.parse(text)
    assert texts[:20] == [script_of(draw(seed)) for seed in range(20)]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(("works", "name"), [(WORKS, "remote"), (SIDE_WORKS, "upload")])
def test_a_wait_that_is_left_out_is_no_short_one(works: dict[str, Work], name: str) -> None:
    """Of no length, it takes a twentieth of a millisecond and more."""
    waited: list[float] = []
    scope: dict[str, Any] = {"time": SimpleNamespace(sleep=waited.append)}
    exec("\n".join(function_of("wait", works[name], "x", "piece_0")), scope)
    scope["wait"](None, 0)
    assert waited == []
    scope["wait"](None, 20)
    assert waited == [pytest.approx(2e-3)]


def test_a_healthy_loop_is_the_same_loop_without_slow_work():
    for seed in range(150):
        drawn, well = draw(seed), healthy(draw(seed))
        assert (well.shape, well.setup, well.stream) == (drawn.shape, drawn.setup, drawn.stream)
        assert all(piece.name == "tiny" for piece in well.pieces)
        ast.parse(script_of(well))
    assert any(piece.name != "tiny" for seed in range(150) for piece in draw(seed).pieces)


def test_what_is_worth_nothing_is_healthy_and_what_is_nearly_equal_may_either_be_named() -> None:
    assert accepted_parts(_gains({"data": 0.03, "eval": 0.01}, {})) == frozenset()
    assert accepted_parts(_gains({"data": 0.6, "other": 0.1}, {"a": 0.1})) == {"data"}
    assert accepted_parts(_gains({"data": 0.3, "other": 0.3}, {"a": 0.15, "b": 0.14})) == {"data", "side"}
    assert accepted_parts(_gains({"data": 0.1, "forward": 0.8}, {"a": 0.1}, {"b": 0.6})) == {"model"}


def test_an_update_that_takes_long_may_be_named_but_need_not() -> None:
    slow_update = _gains({"data": 0.02, "optimizer": 0.4}, {})
    assert accepted_parts(slow_update) == frozenset() and may_be_first("optimizer", slow_update)
    assert not may_be_first("data", slow_update)
    starved = _gains({"data": 0.6, "optimizer": 0.2}, {})
    assert accepted_parts(starved) == {"data"} and may_be_first("data", starved)
    assert not may_be_first("optimizer", starved)
    assert not may_be_first("optimizer", _gains({"optimizer": 0.03}, {}))
    assert not may_be_first(None, slow_update)


def test_workers_that_take_cores_from_the_model_cost_more_than_the_wait_for_their_data() -> None:
    """Collate in four workers on two cores: the step waits for a quarter of it, and takes half as long without it."""
    pieces = (Piece("piece_0", "collate", "spectrum", 1), Piece("in_model", "model", "pattern", 1))
    plan = replace(draw(0), pieces=pieces)
    truth = Truth(100, 15.0, {"data": 0.26, "forward": 0.74}, in_model={"in_model": 0.53})
    gains = gains_of(truth)
    measured = measured_gains(plan, {"piece_0": 15.0 / 7.5, "in_model": 15.0 / 7.2})
    assert measured == pytest.approx({"data": 2.0, "model": 2.08}, rel=0.01)
    assert not may_be_first("data", gains)
    assert may_be_first("data", gains | measured) and may_be_first("model", gains | measured)


def test_a_piece_that_saves_little_of_its_part_is_not_its_place() -> None:
    assert is_most(4.0, 3.0) and is_most(4.0, None)
    assert not is_most(4.0, 0.6)


def test_work_of_an_evaluation_in_the_steps_takes_the_same_time_in_all() -> None:
    shares = {"forward": 0.75, "other": 0.25, "eval": 0.5}
    truth = Truth(100, 10.0, shares, in_evaluation={"a": 0.25})
    moved = with_evaluation_as_side_work(truth)
    assert moved.wall_ms == pytest.approx(truth.wall_ms)
    assert moved.shares == pytest.approx({"forward": 0.6, "other": 0.4, "eval": 0.2})
    without = Truth(100, 10.0, shares)
    assert with_evaluation_as_side_work(without) == without


@pytest.mark.torch
def test_a_script_of_each_shape_tells_a_truth_that_adds_up(tmp_path: Path) -> None:
    scripts = [str(write(draw(seed), tmp_path)) for seed in OF_SHAPE.values()]
    done = warm_python("-c", EACH, "--seconds=0.3", *scripts, env=environment(None))
    assert done.returncode == 0, done.stderr
    truths = [json.loads(line) for line in done.stdout.splitlines() if line != TRAINING]
    assert len(truths) == len(OF_SHAPE) and None not in truths, done.stderr
    for truth in truths:
        assert truth["steps"] > 3
        assert sum(share for part, share in truth["shares"].items() if part != "eval") == pytest.approx(1)
        assert sum(truth["pieces"].values()) <= truth["shares"]["other"] + 1e-9
        assert sum(truth["in_model"].values()) <= truth["shares"]["forward"] + 1e-9


@pytest.mark.torch
def test_one_under_tuimon(tmp_path: Path) -> None:
    args = SimpleNamespace(seconds=5.0, folder=tmp_path, gain=False, interval=None, attach=False, inject=False)
    (row,) = Loops().judged(draw(OF_SHAPE["trainer"]), args)
    assert row.steps_counted == row.steps, row
    assert not row.early, row
    assert row.share_error is not None and row.share_error < 0.15, row


def test_the_gain_that_is_measured_is_that_of_the_line_and_not_of_more_workers() -> None:
    cheaper = Fix("make augment() data.py:31 cheaper", 4.0, 2.0, 4.0)
    found = Finding(
        rule="input_bound", severity="critical", headline="", fixes=(Fix.by("num_workers=0 -> 1", 1.3), cheaper)
    )
    assert of_cheaper_line(found) == 4.0
    assert of_cheaper_line(structs.replace(found, fixes=found.fixes[:1])) == 1.3
    assert of_cheaper_line(structs.replace(found, fixes=())) is None
