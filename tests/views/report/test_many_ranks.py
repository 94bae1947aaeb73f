"""The report of a run on many nodes: bounded, those that matter first."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.fleet_logs import Job, write
from tuimon.cli.main import run_command_line
from tuimon.diagnosis.reading import fold
from tuimon.sources.log.joined.opening import choose, read_logs
from tuimon.views.report.step_json import Json
from tuimon.views.report.summary import report_of
from tuimon.views.report.tables import ranks_table
from tuimon.views.report.text import text_report

JOB = Job(nodes=36, ranks=2, seconds=10.0, workers=0, gpus=False, late=70)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Json], dict[str, Json]]:
    folder = str(tmp_path_factory.mktemp("logs"))
    write(folder, JOB)
    session, findings = fold(read_logs(choose(folder)))
    bounded, full = (report_of(session, findings, folder, full=full) for full in (False, True))
    return bounded, full


def test_of_many_ranks_those_that_hold_the_others_up_are_listed(
    reports: tuple[dict[str, Json], dict[str, Json]],
) -> None:
    bounded, full = reports
    assert [rank["rank"] for rank in full["ranks"]] == list(range(72))
    listed = [rank["rank"] for rank in bounded["ranks"]]
    assert len(listed) == 64
    assert listed == sorted(listed)
    assert 70 in listed
    late = next(rank for rank in bounded["ranks"] if rank["rank"] == 70)
    assert late["host"] == "node035"
    assert late["pid"] == 1001
    assert late["late_ms"] == pytest.approx(0.2 * late["steps"]["median_ms"], rel=0.1)


def test_a_summary_stands_for_all_of_them(reports: tuple[dict[str, Json], dict[str, Json]]) -> None:
    bounded, full = reports
    summary = bounded["ranks_summary"]
    assert summary == full["ranks_summary"]
    assert summary["count"] == 72
    counts = [rank["steps"]["count"] for rank in full["ranks"]]
    assert summary["steps"] == [min(counts), counts[0], max(counts)]
    assert sum(phase["share"] for phase in summary["phases"]) == pytest.approx(1.0, abs=0.01)


def test_nodes_are_told(reports: tuple[dict[str, Json], dict[str, Json]]) -> None:
    run = reports[0]["run"]
    assert run["name"] == "bench"
    assert run["node_count"] == len(run["nodes"]) == 36
    assert {node["state"] for node in run["nodes"]} == {"ended"}


def test_the_text_names_the_late_rank_and_fits_a_page(reports: tuple[dict[str, Json], dict[str, Json]]) -> None:
    lines = text_report(reports[0]).splitlines()
    at = lines.index("Ranks, first those that are not well or hold the others up")
    assert lines[1].startswith("node000 and 35 more nodes, started ")
    assert lines[at + 1].startswith("  rank 70 on node035: ")
    assert ", late by 39" in lines[at + 1]
    assert lines[at + 3].startswith("  all 72: ")
    assert lines[at + 5] == ""


def test_a_few_ranks_have_a_page_without_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    write(str(tmp_path), Job(nodes=1, ranks=3, seconds=5.0, workers=0, gpus=False, late=1))
    assert run_command_line(["report", str(tmp_path), "--format", "html"]) == 0
    page = capsys.readouterr().out
    assert "<h2>Ranks</h2>" in page and "those that are not well" not in page


def test_of_many_ranks_the_page_has_the_latest_in_sight(reports: tuple[dict[str, Json], dict[str, Json]]) -> None:
    table = ranks_table(reports[0]["ranks"])
    assert table["first"][0]["rank"] == 70
    assert len(table["first"]) == 16
    assert sorted(row["rank"] for row in (*table["first"], *table["rest"])) == [r["rank"] for r in reports[0]["ranks"]]
