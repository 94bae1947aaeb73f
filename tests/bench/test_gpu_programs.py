"""The trainings of ``make gpu-check``: each of them on the CPU, and the table of what came out of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.gpu import program_runs, watched
from bench.gpu.rows import Rows, tables
from tests.agent.programs import environment
from tests.warm_torch import warm_python
from tuimon.diagnosis.rulebook import BY_NAME

FINDING = {
    "rule": "input_bound",
    "severity": "critical",
    "where": [{"file": "/x/programs/dummy_loader.py", "line": 33, "function": "train"}],
    "evidence": {},
    "fixes": [{"estimated_speedup": 4.0, "low": 1.6, "high": 4.2}],
}
MEANS = '{"as_it_is_ms": 37.8, "fixed_ms": 7.1, "again_ms": 38.4}\n'


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


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> dict[str, subprocess.CompletedProcess[str]]:
    """How the program ends under tuimon and without; its report has one finding."""
    endings = {name: subprocess.CompletedProcess([], 0, "", "") for name in ("watched", "plain")}
    endings["plain"].stdout = MEANS

    def watch(log: Path, *_: object) -> subprocess.CompletedProcess[str]:
        log.touch()
        return endings["watched"]

    monkeypatch.setattr(watched, "watch", watch)
    monkeypatch.setattr(watched, "run", lambda *_: endings["plain"])
    monkeypatch.setattr(watched, "findings", lambda _: [FINDING])
    return endings


def test_verdict_and_gain_stand_beside_each_other(
    tmp_path: Path, ended: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    rows = Rows(tmp_path, "programs")
    for run in program_runs.measure(8.0, 1.0, 1e9, tmp_path, lambda _: None, ["dummy_loader"]):
        rows.add(run)
    head, _, line = tables(tmp_path).splitlines()
    assert [cell.strip() for cell in line.split("  ") if cell] == [
        *("dummy_loader", "input_bound", "input_bound (critical)", "train() dummy_loader.py:33"),
        *("1.6 to 4.2x", "5.37x", "37.8 / 7.1 / 38.4"),
    ]
    assert head.split()[:3] == ["program", "expected", "verdict"]


def test_as_many_programs_as_fit_and_the_others_are_named(
    tmp_path: Path, ended: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    said: list[str] = []
    runs = program_runs.measure(8.0, 1.0, 0.0, tmp_path, said.append, ["compiled", "cell_by_cell", "masked_loss"])
    assert [run.program for run in runs] == ["compiled", "compiled"]
    assert said[-1] == "no time for cell_by_cell, masked_loss"


def test_a_program_that_fails_says_how_and_one_with_other_weights_as_well(
    tmp_path: Path, ended: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    ended["watched"].returncode, ended["watched"].stderr = 1, "[tuimon] LAUNCH-BOUND\nRuntimeError: CUDA error\n"
    ended["watched"].stdout = "weights after 300 steps: aa\n"
    ended["plain"].stdout = "weights after 300 steps: bb\n"
    *_, run = program_runs.measure(8.0, 1.0, 1e9, tmp_path, lambda _: None, ["compiled"])
    assert run.remark == "under tuimon: exit code 1: RuntimeError: CUDA error; OTHER WEIGHTS"
    assert run.means is None and "–" in run.cells()


@pytest.mark.parametrize(
    ("gains", "told"),
    [
        ((None, None, None), ""),
        ((4.2, 4.2, 4.2), "4.2x"),
        ((4.0, 1.6, 28.17), "1.6 to 28.2x"),
        ((4.0, 1.6, None), "at least 1.6x"),
        ((None, None, 1.38), "at most 1.38x"),
    ],
)
def test_the_gain_as_it_is_told(gains: tuple[float | None, ...], told: str) -> None:
    fix = dict(zip(("estimated_speedup", "low", "high"), gains, strict=True))
    assert program_runs._told(FINDING | {"fixes": [fix]}) == told
    assert program_runs._told(FINDING | {"fixes": []}) == ""
