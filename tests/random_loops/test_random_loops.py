"""The generator itself: its scripts are valid, the same for a seed, and tell a truth that adds up."""

import ast
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.agent.programs import environment
from tests.random_loops.plan import SHAPES, draw, healthy
from tests.random_loops.script import script_of
from tests.truth.loops import Loops, write
from tests.truth.running import TRAINING
from tests.warm_torch import warm_python

#: The first seed of each shape, with no long set-up.
OF_SHAPE = {
    shape: next(seed for seed in range(1000) if draw(seed).shape == shape and draw(seed).setup_s < 1)
    for shape in SHAPES
}

#: Scripts one after the other in one process: torch takes longer to import than they need.
EACH = """
import os, runpy, sys, traceback
seconds, *scripts = sys.argv[1:]
for path in scripts:
    sys.path.insert(0, os.path.dirname(path))
    sys.argv = [path, seconds]
    sys.modules.pop("laps", None)
    try:
        runpy.run_path(path, run_name="__main__")
    except Exception:
        traceback.print_exc()
        print("null", flush=True)
    sys.path.pop(0)
"""


def test_every_script_compiles_and_is_the_same_for_a_seed() -> None:
    texts = [script_of(draw(seed)) for seed in range(150)]
    for text in [*texts, *(script_of(healthy(draw(seed))) for seed in range(150))]:
        ast.parse(text)
    assert texts[:20] == [script_of(draw(seed)) for seed in range(20)]
    assert len(set(texts)) == len(texts)


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
    args = SimpleNamespace(seconds=5.0, folder=tmp_path, gain=False, attach=False)
    (row,) = Loops().judged(draw(OF_SHAPE["trainer"]), args)
    assert row.steps_counted == row.steps, row
    assert not row.early, row
    assert row.share_error is not None and row.share_error < 0.15, row
