"""The trainings of ``make gpu-check``: each of them on the CPU, and the table of what came out of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.gpu import program_runs
from tests.agent.programs import environment
from tests.warm_torch import warm_python
from tuimon.diagnosis.rulebook import BY_NAME


@pytest.mark.torch
@pytest.mark.parametrize("form", ["as it is", "fixed"])
@pytest.mark.parametrize("program", program_runs.names())
def test_each_trains_on_the_cpu(program: str, form: str) -> None:
    pytest.importorskip("torch")
    words = [str(program_runs.FOLDER / f"{program}.py"), "--seconds", "0.1", *(["--fixed"] if form == "fixed" else [])]
    done = warm_python(*words, env=environment(None))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" ms a step")


@pytest.mark.torch
def test_one_under_tuimon_and_its_gain(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    seen, measured = program_runs.measure(1.0, 0.1, 1e9, tmp_path, lambda _: None, ["masked_loss"])
    assert (tmp_path / "masked_loss.jsonl").stat().st_size
    assert seen.means is None and seen.remark == ""
    assert measured.means is not None and min(measured.means) > 0.0
    assert measured[:5] == seen[:5] and measured.remark == ""


def test_what_an_expert_would_name_are_rules() -> None:
    assert len(program_runs.names()) >= 14
    for program in program_runs.names():
        assert {*program_runs.expected(program).split(" or ")} <= {*BY_NAME, "none"}
