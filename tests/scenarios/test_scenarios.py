"""The labels of all scenarios, a short run of three of them, and the simulated GPU trainings."""

import ast
import shutil

import pytest

from tests.scenarios import attaching, running
from tests.scenarios.attaching import has_begun
from tests.scenarios.catalogue import catalogue
from tests.scenarios.judging import Judgement, judge
from tests.scenarios.running import Truth, gained_by, recall, remember, run, truth_of
from tests.scenarios.streams import STREAMS, judged
from tests.scenarios.table import HEAD, line, totals
from tuimon.diagnosis.rulebook import CAUSES, RULE_NAMES
from tuimon.records import Steps
from tuimon.sources.log.reader import read_log

SCENARIOS = catalogue()


def test_there_are_enough_and_enough_healthy_ones():
    assert len(SCENARIOS) >= 24
    assert sum(scenario.rule is None for scenario in SCENARIOS.values()) >= 5


@pytest.mark.parametrize("name", SCENARIOS)
def test_labels_are_names_of_rules_and_of_lines_that_exist(name):
    scenario = SCENARIOS[name]
    ast.parse(scenario.path.read_text())
    assert scenario.rule is None or scenario.rule in RULE_NAMES
    assert scenario.cause is None or scenario.cause in CAUSES
    assert bool(scenario.lines) == (scenario.rule not in (None, "cpu_oversubscribed", "comm_bound", "slow_setting"))
    assert scenario.fixable == (scenario.rule is not None)


def test_what_a_script_tells_is_found_behind_its_progress_bar():
    bar = "  0%|          | 0/1000 [00:00<?, ?it/s]"
    assert has_begun(f"loading\n{bar}training\n") and not has_begun(f"loading\n{bar}\n")
    assert truth_of(0, f'{bar}{{"steps": 9, "step_ms": 2.0, "shares": {{}}}}\n').steps == 9


@pytest.mark.parametrize(("gain", "doubtful"), [(0.94, True), (1.3, False), (None, False)])
def test_a_fault_without_which_a_script_is_hardly_faster_is_told(gain, doubtful):
    row = Judgement(
        scenario=next(scenario for scenario in SCENARIOS.values() if scenario.rule is not None),
        got="-",
        headline="",
        right=False,
        place="",
        place_right=None,
        share_error=None,
        verdict_s=None,
        false_alarms=(),
        predicted=None,
        measured=gain,
        others_cores=0.0,
    )
    assert ("hardly faster without their fault" in totals([row], 1)) is doubtful


def test_what_changes_gain_is_measured_between_two_runs_of_the_command_as_it_is(monkeypatch):
    steps_ms = {"train": iter((10.0, 14.0)), "half": iter((6.0,)), "none": iter((4.0,))}
    monkeypatch.setattr(running, "measure", lambda command: Truth(100, next(steps_ms[command[0]]), {}))
    assert gained_by(["train"], {"a": ["half"], "b": ["none"]}) == {"a": 2.0, "b": 3.0}


@pytest.mark.torch
@pytest.mark.parametrize("name", ["photos_without_workers", "checkpoint_every_step", "healthy_compiled"])
def test_the_verdict_is_right(name, tmp_path):
    scenario = SCENARIOS[name]
    outcome = run(scenario, 6.0, tmp_path)
    remember(scenario, tmp_path, outcome, {})
    assert recall(scenario, tmp_path) == (outcome, {})
    row = judge(scenario, outcome, None)
    report = "\n".join((HEAD, line(row), totals([row], expected_rows=1)))
    assert row.right, report
    assert row.place_right is not False, report
    assert not row.false_alarms, report
    assert row.share_error < 0.15, report
    assert row.steps_counted == row.steps, report


@pytest.mark.torch
@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
def test_the_verdict_is_right_when_tuimon_comes_later(tmp_path, monkeypatch):
    monkeypatch.setattr(attaching, "BEFORE_S", 0.5)
    verdict = attaching.attached_verdict(SCENARIOS["photos_without_workers"], 5.0, tmp_path, ("--inject",))
    assert (verdict.name, verdict.function) == ("input_bound/no_workers", "blur() photos_without_workers.py")
    records = list(read_log(str(tmp_path / "photos_without_workers.attached.jsonl")))
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
def test_the_verdict_on_a_simulated_gpu_training_is_right(stream, tmp_path):
    row = judged(stream, tmp_path, 12.0)
    report = "\n".join((HEAD, line(row), row.headline, totals([row], expected_rows=1)))
    assert row.right, report
    assert row.place_right is not False, report
    assert not row.false_alarms, report
    assert row.verdict_s is not None and row.verdict_s <= 10, report
    assert row.gain_error is None or abs(row.gain_error) <= 0.25, report
    assert len(row.got) + len(row.headline) <= 2 * 78, report  # two lines of a narrow terminal
