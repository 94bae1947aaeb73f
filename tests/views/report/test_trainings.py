"""Trainings side by side in a report: it is of one, and says what was found in each."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.session.records import header, process, session_of, steps, threads
from tests.views.report.test_html import log_of, page_of
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.session.session import Session
from tuimon.views.report.summary import report_of
from tuimon.views.report.text import text_report
from tuimon.views.report.types import Report

EVEN, WAITS, LATE = (
    {"forward": 20, "backward": 80},
    {"data": 10, "forward": 10, "backward": 80},
    {"data": 60, "forward": 10, "backward": 30},
)


def two_trainings() -> Session:
    """Two ranks each: in the second one rank 1 waits for its data."""
    session = session_of(header(cpu_count=16))
    ranks = [(100, 0, 50, EVEN, 0.9), (101, 1, 50, EVEN, 0.9), (200, 0, 60, WAITS, 0.5), (201, 1, 60, LATE, 0.95)]
    for n, (pid, rank, ppid, _, _) in enumerate(ranks):
        facts = {"rank": rank, "world_size": 2, "ppid": ppid, "python": "3.11.7", "start_unix_s": 1.7e9 + n}
        session.add(process(pid, command=["python", f"train{ppid}.py"], **facts))
    for t in range(1, 14):
        for pid, _, _, phases, cpu in ranks:
            session.add(threads(t, (pid, "python", cpu, "running", 0.0), pid=pid, cpu_ratio=cpu))
            session.add(steps(t, phases, pid=pid, first_index=10 * (t - 1)))
    return session


def test_each_is_listed_with_its_own_steps_and_findings() -> None:
    session = two_trainings()
    report = report_of(session, Verdicts().judge_run(session), "run.jsonl")
    first, second = report["trainings"]
    assert [(each["number"], each["ranks"], each["in_focus"]) for each in (first, second)] == [
        (1, 2, True),
        (2, 2, False),
    ]
    assert second["command"] == ["python", "train60.py"]
    assert "straggler_rank" not in {finding["rule"] for finding in (*report["findings"], *first["findings"])}
    assert second["findings"][0]["rule"] == "straggler_rank"
    assert "for rank 1" in second["findings"][0]["headline"]
    assert [(rank["training"], rank["rank"]) for rank in report["ranks"]] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert "on each of 2 ranks, one of 2 trainings side by side" in report["summary"]
    assert session.trainer() == 100  # the focus is as it was
    msgspec.convert(report, Report)


def test_processes_without_ranks_are_not_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [header()]
    for pid in (100, 200):
        records.append(process(pid, command=["python", f"train{pid}.py"]))
        records += [steps(t, EVEN, pid=pid, first_index=10 * (t - 1)) for t in range(1, 14)]
    lines = text_report(report_of(session_of(*records), [], "run.jsonl")).splitlines()
    assert "Training processes" in lines and "Ranks" not in lines
    page = page_of(log_of(tmp_path / "run.jsonl", records), capsys=capsys)
    assert "<h2>Training processes</h2>" in page and "<th>process</th>" in page and "<h2>Ranks</h2>" not in page
    assert "Ranks" in text_report(report_of(two_trainings(), [], "run.jsonl")).splitlines()
