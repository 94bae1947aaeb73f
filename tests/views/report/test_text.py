"""The report: the JSON contract, and text for an e-mail."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.session import records
from tests.sources.log.literal_log import write
from tuimon.cli.main import run_command_line
from tuimon.diagnosis.reading import fold
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import Exit, Notice, Record
from tuimon.views.report.sentences import final_verdict
from tuimon.views.report.summary import report_of
from tuimon.views.report.text import text_report

PHASES = {"data": 62, "forward": 11, "backward": 16, "optimizer": 6, "other": 5}


def run() -> list[Record]:
    return [
        records.header(),
        records.process(),
        *(records.steps(float(t), PHASES, first_index=10 * (t - 1)) for t in range(1, 61)),
        Notice(t=60.0, pid=0, source="gpu", level="info", message="no [bold]driver\x1b[1m"),
        Exit(t=61.0, pid=100, exit_code=0),
    ]


def test_of_a_training_attached_to_the_steps_that_were_seen_are_summed_up() -> None:
    """It had made 5,000 before: three windows of ten steps are no 5,040 in 3 s."""
    seen = [records.steps(float(t), PHASES, first_index=5000 + 10 * t) for t in range(1, 4)]
    header = msgspec.structs.replace(records.header(), mode="attach")
    session, findings = fold([header, records.process(), *seen], verdicts := Verdicts())
    summary = report_of(session, findings, "run.jsonl", verdicts.changes)["summary"]
    assert summary.startswith("train.py made 30 steps in 3.0s, from step 5 010 on (median"), summary


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(write(tmp_path / "run.jsonl", *run()))


def test_text_fits_an_email(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["report", log]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 78
    assert "\x1b" not in out
    assert "no [bold]driver" in out
    assert "600 steps" in out
    assert "INPUT-BOUND" in out.split("\n\n")[1]
    assert any("data" in line and "62 %" in line for line in out.splitlines())


ENDED = Exit(t=1.0, pid=100, exit_code=3, last_line="KeyError", file="/x/train.py", line=7, function="main")


def test_an_end_of_unknown_exit_code() -> None:
    for end, says in (
        (ENDED, "ended by an error at main() train.py:7: KeyError"),
        (Exit(t=1.0, pid=100, exit_code=0), "the process has ended"),
    ):
        session, findings = fold([records.header(), msgspec.structs.replace(end, exit_code=None)])
        assert f"\n{says}\n" in text_report(report_of(session, findings, "x"))


def test_a_run_without_steps() -> None:
    session, findings = fold([records.header(), ENDED])
    report = report_of(session, findings, "x")
    assert report["phases"] == []
    assert report["steps"]["count"] == 0
    assert report["steps"]["median_ms"] is None
    text = text_report(report)
    assert "No training step was seen.\nIt ended after 1.0s." in text
    assert "No finding" not in text  # without a step there is nothing to find one in
    assert report["state"]["name"] == "ended"
    assert "\nended with exit code 3 at main() train.py:7: KeyError\n" in text


def test_a_single_step_without_times_is_too_few_for_a_verdict() -> None:
    """It was open, and ended with the run."""
    opened = msgspec.structs.replace(
        records.steps(3.0, {}, count=1), total_ns=0, timed=0, slowed=1, slowed_ns=2 * 10**9
    )
    session, _ = fold([records.header(), records.process(), opened, Exit(t=3.0, pid=100, exit_code=143)])
    report = report_of(session, (), "run.jsonl")
    assert report["summary"].startswith(
        "train.py made 1 step in 3.0s. Too few steps to say what holds this training back."
        " To do: record a run with more steps."
    )
    text = text_report(report)
    assert "Too few steps to say what holds this training back." in text and "1 step," in text
    assert "No finding" not in text


@pytest.mark.parametrize(
    "names, code", [("input_bound", 1), ("no_workers,hang", 1), ("critical", 1), ("warning,side_work", 0)]
)
def test_fail_on_a_finding_is_told_by_the_exit_code(
    log: str, capsys: pytest.CaptureFixture[str], names: str, code: int
) -> None:
    assert run_command_line(["report", log, "--fail-on", names]) == code
    shown = capsys.readouterr()
    assert ("INPUT-BOUND" in shown.out, "input_bound (critical): 62 % of each step" in shown.err) == (True, bool(code))


def test_fail_on_something_unknown_is_a_usage_error(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["report", log, "--fail-on", "slow"]) == 2
    assert "'slow' is not a rule, a cause or a severity" in capsys.readouterr().err


def test_the_verdict_that_stands() -> None:
    side_work = {"rule": "side_work", "cause": "evaluation", "severity": "critical"}
    assert final_verdict([side_work]) == "SIDE-WORK (evaluation)"
    assert final_verdict([side_work | {"severity": "info"}]) == final_verdict([]) == "nothing found"
