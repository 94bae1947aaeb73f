"""The report: the JSON contract, and text for an e-mail."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.session import records
from tests.sources.log.literal_log import write
from tuimon.cli.main import run_command_line
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.reading import fold
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import Exit, Notice, Place, Record
from tuimon.views.format import count
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


def test_json_is_the_contract(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["report", log, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == 1
    assert {"run", "ranks", "steps", "phases", "findings"} <= report.keys()
    assert report["steps"]["count"] == 600
    assert report["steps"]["median_ms"] == pytest.approx(100, rel=0.1)
    assert report["steps"]["p95_ms"] == pytest.approx(100, rel=0.1)
    assert [phase["name"] for phase in report["phases"]] == list(PHASES)
    assert sum(phase["share"] for phase in report["phases"]) == pytest.approx(1)
    assert report["phases"][0]["share"] == pytest.approx(0.62)
    assert report["phases"][0]["cpu_ms_per_step"] == pytest.approx(62)
    assert report["phases"][0]["gpu_ms_per_step"] is None
    first = report["findings"][0]
    assert first["rule"] == "input_bound"
    assert first["severity"] in ("critical", "warning", "info", "benign")
    assert {"share_of_step", "cause", "where", "evidence", "action", "estimated_speedup"} <= first.keys()
    assert first["fixes"][0].keys() == {"action", "estimated_speedup", "low", "high"}
    assert report["run"]["exit_code"] == 0
    assert report["ranks"][0]["pid"] == 100


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


def test_a_place_is_followed_by_its_line_of_code_in_one_row() -> None:
    places = (Place("/a/train.py", 7, "main", f"    x = load({'i, ' * 40})"), Place("/a/train.py", 9, "main"))
    session, _ = fold(run())
    found = Finding(rule="input_bound", severity="critical", headline="62 % waits", where=places)
    rows = text_report(report_of(session, [found], "x")).splitlines()
    at = rows.index("  at /a/train.py:7 main")
    assert rows[at + 1].startswith("      x = load(i, i, ") and rows[at + 1].endswith("…") and len(rows[at + 1]) == 78
    assert rows[rows.index("  at /a/train.py:9 main") + 1] == ""


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


def test_evaluation_is_of_a_batch_and_evidence_has_units() -> None:
    phases = PHASES | {"eval": 80.0}
    folded, findings = fold(
        [records.header(), records.process(), *(records.steps(float(t), phases, eval_count=10) for t in range(1, 31))]
    )
    text = text_report(report_of(folded, findings, "run.jsonl"))
    (row,) = [line for line in text.splitlines() if line.startswith("  eval")]
    assert "share of the loop's time" in row and row.endswith("80.0 ms a batch")
    assert "Evidence: data per step 62.0 ms, step 100 ms, workers 0\n" in text


def test_headline_place_fix_and_gain_of_the_verdict_stand_once_each_on_its_own_line() -> None:
    session, findings = fold(run())
    report = report_of(session, findings, "run.jsonl")
    first, *_ = report["findings"]
    text = " ".join(text_report(report).split())
    assert text.count(first["headline"]) == 1 and text.count(first["action"]) == 1
    verdict = text_report(report).split("\n\n")[1].splitlines()
    assert verdict[0].startswith(f"INPUT-BOUND (critical, {first['cause']}): 62 %")
    assert any(line.startswith("  Fix: ") for line in verdict)
    assert verdict[-1].startswith("  Gain: ") and verdict[-1].endswith("x faster")
    assert "\n\nINPUT-BOUND in detail\n  Or: " in text_report(report)


def test_it_is_written_to_a_file(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.json"
    assert run_command_line(["report", log, "--format", "json", "-o", str(target)]) == 0
    assert json.loads(target.read_text())["schema"] == 1
    assert capsys.readouterr().out == ""
    assert run_command_line(["report", log, "-o", str(tmp_path / "no" / "x")]) == 1
    assert "mkdir -p" in capsys.readouterr().err


@pytest.mark.parametrize(("content", "says"), [(b"", "is empty"), (b"\x00\x01\x02", "is not a tuimon log")])
def test_what_is_no_log(content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    for words in (["report", str(path)], ["view", str(path)]):
        assert run_command_line(words) == 1
        assert says in capsys.readouterr().err


def finding(rule: str, cause: str | None = None, headline: str = "") -> Finding:
    return Finding(rule=rule, severity="warning", headline=headline, cause=cause)


def test_the_verdict_on_a_run_is_of_all_its_steady_steps() -> None:
    healthy = {"data": 1, "forward": 50, "backward": 49}
    later = [records.steps(float(t), healthy, first_index=10 * (t - 1)) for t in range(61, 121)]
    session, findings = fold([*run()[:-1], *later])
    report = report_of(session, findings, "x")
    starved = next(f for f in report["findings"] if f["rule"] == "input_bound")
    assert starved["share_of_step"] == report["phases"][0]["share"] == pytest.approx((62 + 1) / 200)
    assert starved["headline"].startswith("32 % of each step")
    assert starved["evidence"]["step_ms"] == pytest.approx(100)
    assert report["span"] == {"first_step": 0, "last_step": 1199, "seconds": 120.0}
    assert f"Phases and findings cover steps 0 to {count(1199)}, 2m00s" in text_report(report)


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


def test_changes_of_the_verdict_and_rules_without_evidence_are_told() -> None:
    healthy = {"data": 1, "forward": 50, "backward": 49}
    later = [records.steps(float(t), healthy, first_index=10 * (t - 1)) for t in range(62, 130)]
    verdicts = Verdicts()
    session, findings = fold([*run()[:-1], *later], verdicts)
    report = report_of(session, findings, "x", verdicts.changes)
    assert report["changes"][0]["from"] == "input_bound/no_workers"
    assert report["changes"][0]["step"] > 600
    assert "gc_pauses" in {entry["rule"] for entry in report["unjudged"]}
    text = text_report(report)
    changed = next(part for part in text.split("\n\n") if part.startswith("How the verdict changed")).splitlines()
    assert "INPUT-BOUND (no workers) -> " in changed[1]
    assert changed[-1] == f"  over the whole run: {final_verdict(report['findings'])}"
    assert "places: no stack samples" in text


def test_how_well_stacks_were_sampled_is_in_the_report(log: str, tmp_path: Path) -> None:
    assert report_of(*fold(run())[:2], log)["sampling"] is None
    windows = [records.stacks(float(t), ([0], 20)) for t in range(1, 61)]
    report = report_of(*fold([*run()[:2], *windows, *run()[2:]])[:2], log)
    assert report["sampling"]["rate_hz"] == pytest.approx(20)
    assert report["sampling"]["coverage"] == pytest.approx(1.0)
    assert (report["sampling"]["failed_samples"], report["sampling"]["lost_windows"]) == (0, 0)
    assert "Stack samples: 20 Hz · 100 % covered" in text_report(report)


def test_the_verdict_that_stands() -> None:
    side_work = {"rule": "side_work", "cause": "evaluation", "severity": "critical"}
    assert final_verdict([side_work]) == "SIDE-WORK (evaluation)"
    assert final_verdict([side_work | {"severity": "info"}]) == final_verdict([]) == "nothing found"
