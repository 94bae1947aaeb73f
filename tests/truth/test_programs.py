"""The labels of all programs, a short run of one of them, and the simulated GPU trainings."""

import ast
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.recorded_logs import ROOT
from tests.scenarios.streams import STREAMS, Stream, judged
from tests.session.records import process, session_of, steps
from tests.truth import judging, running
from tests.truth.programs import Program, labelled, tried, wild
from tests.truth.running import Truth
from tuimon.diagnosis.rulebook import CAUSES, RULE_NAMES
from tuimon.records import Steps
from tuimon.sources.log.source import read_records

PROGRAMS = labelled(experiment="scenarios")
LAPS = ROOT / "tests" / "scenarios" / "scripts" / "laps.py"
ON_FRAMEWORKS = wild()
#: What the stopwatch of all programs can do.
STOPWATCH = {node.name for node in ast.walk(ast.parse(LAPS.read_text())) if isinstance(node, ast.FunctionDef)}
#: Rules of which no line of the program is the cause.
_WITHOUT_LINE = ("cpu_oversubscribed", "comm_bound")
_MAY_LACK_LINE = "slow_setting"  # a type has none, a check or a tracer has


def test_there_are_enough_and_enough_healthy_ones() -> None:
    assert len(PROGRAMS) >= 24
    assert sum(program.is_healthy for program in PROGRAMS.values()) >= 5
    assert len({program.package for program in ON_FRAMEWORKS.values()}) >= 10
    assert sum(program.is_healthy for program in ON_FRAMEWORKS.values()) * 2 == len(ON_FRAMEWORKS)


@pytest.mark.parametrize("program", [*PROGRAMS.values(), *ON_FRAMEWORKS.values()], ids=lambda program: program.name)
def test_labels_are_names_of_rules_and_of_lines_that_exist(program: Program) -> None:
    tree = ast.parse(program.path.read_text())
    for rule, _, cause in (each.partition("/") for each in program.rules):
        assert program.missed or (rule in RULE_NAMES and cause in ("", *CAUSES))
        assert bool(program.blamed) == (rule not in _WITHOUT_LINE) or rule == _MAY_LACK_LINE or program.missed
    assert (program.fixed is None) == program.is_healthy or program.missed
    calls = [
        node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    of_stopwatch = {call.attr for call in calls if ast.unparse(call.value).endswith(("watch", "clock"))}
    assert of_stopwatch <= STOPWATCH
    if program.package:
        assert any(isinstance(node, ast.Name) and node.id == "PLANTED" for node in ast.walk(tree))


def test_shares_are_compared_over_the_steps_that_tuimon_reports() -> None:
    """A long step may be one of those that the program counts and tuimon takes for the warm-up."""
    usual = {"data": 20.0, "other": 80.0}
    first = steps(101.0, usual | {"backward": 400.0}, count=5)
    session = session_of(process(), first, *(steps(t, usual, first_index=5) for t in (102.0, 103.0)))
    course = [(98.0, {}), (100.9, {"data": 0.1, "backward": 2.0, "other": 0.4})]
    course.append((103.0, {"data": 0.5, "backward": 2.0, "other": 2.0}))
    truth = Truth(25, 100.0, {"data": 0.11, "backward": 0.44, "other": 0.45}, pid=100)
    assert judging.share_error(session, truth) == pytest.approx(0.44)
    assert judging.share_error(session, replace(truth, course=course)) == pytest.approx(0.0)
    whole = judging.since(98.05, replace(truth, course=course))  # in the wait for the first batch
    assert whole.shares == pytest.approx({"data": 0.45 / 4.45, "backward": 2.0 / 4.45, "other": 2.0 / 4.45})


@pytest.mark.torch
def test_the_verdict_is_right(tmp_path: Path) -> None:
    """Of a training that is in order; what is said of the others, recorded logs show."""
    args = SimpleNamespace(gain=False, attach=False, folder=tmp_path, seconds=6.0)
    row = tried(PROGRAMS["healthy_compiled"], args)
    assert row.right and not row.false_alarms, row
    assert row.share_error is not None and row.share_error < 0.15, row
    assert row.steps_counted == row.steps, row


@pytest.mark.torch
@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
def test_the_verdict_is_right_when_tuimon_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "BEFORE_S", 0.5)
    program = PROGRAMS["photos_without_workers"]
    outcome = running.attached(program.name, program.command, 5.0, tmp_path, ("--inject",))
    row = judging.judge(program, outcome)
    assert (row.verdict.name, row.verdict.function) == ("input_bound/no_workers", "blur() photos_without_workers.py")
    records = list(read_records(str(outcome.log)))
    assert sum(record.count for record in records if isinstance(record, Steps)) > 5  # measured, not inferred


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(
            stream,
            id=stream.name,
            marks=[pytest.mark.xfail(reason=stream.wrong_because, strict=True)] if stream.wrong_because else [],
        )
        for stream in STREAMS
    ],
)
def test_the_verdict_on_a_simulated_gpu_training_is_right(stream: Stream, tmp_path: Path) -> None:
    row = judged(stream, tmp_path, stream.settles_s + 2.0)
    assert row.right, row
    assert row.place_right is not False, row
    assert not row.false_alarms, row
    assert row.verdict_s is not None and row.verdict_s <= stream.settles_s, row
    assert row.gain_error is None or abs(row.gain_error) <= 0.25, row
    assert len(row.verdict.name) + len(row.headline) <= 2 * 78, row  # two lines of a narrow terminal
