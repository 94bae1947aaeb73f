"""The report of ranks: of many nodes, of trainings side by side, of one that was started again."""

import re
from pathlib import Path

import msgspec
import pytest

from bench.fleet_logs import Job, write
from tests.recorded_logs import log_path
from tests.session.records import extend, header, loop, process, session_of, steps, thread
from tests.views.report.test_html import Checked, log_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import Verdicts, fold
from tuimon.node_ids import id_on_node
from tuimon.records import Exit, Record, TraceTaken
from tuimon.session.ranks import rank_rows
from tuimon.session.session import Session
from tuimon.sources.log.source import read_records
from tuimon.views.report.report import report_of
from tuimon.views.report.write import text_report
from tuimon.views.report_types import Report
from tuimon.views.scale import Axis
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.panes.ranks_pane import RanksPane, RanksState

JOB = Job(nodes=36, ranks=2, seconds=10.0, workers=0, gpus=False, late=70)


@pytest.fixture(scope="module")
def of_many(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = str(tmp_path_factory.mktemp("logs"))
    write(folder, JOB)
    session, findings = fold(read_records(folder))
    return report_of(session, findings, folder)


def test_all_ranks_are_listed_however_many(of_many: Report) -> None:
    assert [rank.rank for rank in of_many.ranks] == list(range(72))
    late = of_many.ranks[70]
    assert late.host == "node035"
    assert late.pid == 1001
    assert late.late_ms == pytest.approx(0.2 * late.steps.median_ms, rel=0.1)


def test_the_text_names_the_late_rank_and_fits_a_page(of_many: Report) -> None:
    lines = text_report(of_many).splitlines()
    at = lines.index("Ranks; those in trouble, or holding the others up, come first")
    assert lines[1].startswith("node000 and 35 more nodes, started ")
    assert lines[at + 1].startswith("  rank 70 on node035: ")
    assert ", late by 39" in lines[at + 1]
    assert lines[at + 3].startswith("  all 72: ")
    assert lines[at + 5] == ""


def test_the_page_draws_the_first_gpus_of_all_nodes(tmp_path: Path, page_of) -> None:
    write(str(tmp_path), Job(nodes=3, ranks=8, seconds=4.0, workers=0, gpus=True, late=3))
    text = Checked(page_of(str(tmp_path))).text
    drawn = re.findall(r"GPU (\d) \D.* (node\d+)\n", text)
    assert drawn == [(str(gpu), f"node00{node}") for node in (0, 1) for gpu in range(8)]
    assert "And 8 more GPUs in use." in text


def test_a_rank_that_comes_before_the_others_is_not_late(page_of) -> None:
    log = str(log_path("slow_rank"))
    early, _ = report_of(*fold(read_records(log))).ranks
    assert early.late_ms < 0
    page = page_of(log)
    assert "late by" in page and '<td class="n">0 ms</td>' in page and '<td class="n">-' not in page


@pytest.mark.parametrize(("longer_ms", "is_late"), [(7, False), (15, True)])
def test_report_and_pane_call_the_same_rank_late(longer_ms: int, is_late: bool) -> None:
    """Both say so from the share of the step on that a verdict reports."""
    session = session_of(header(cpu_count=8))
    for number, data_ms in enumerate((1, 1 + longer_ms)):
        phases = {"data": data_ms, "forward": 39, "backward": 60 - data_ms}
        facts = process(100 + number, rank=number, world_size=2)
        extend(session, facts, loop(30, phases, pid=100 + number), thread(30, 0.9, 0.0, pid=100 + number))
    report = report_of(session, [])
    assert [rank.is_late for rank in report.ranks] == [False, is_late]
    assert (", late by" in text_report(report)) is is_late
    state = RanksState(
        tuple(rank_rows(session.over("recent"))), 100, False, Axis(0.0, 1.0, 30), ended=False, span="last 30s"
    )
    shown = text_of(RanksPane().draw(state, 100, 10)[0])
    assert shown.startswith("Rank 1 may be late: " if is_late else "Nobody is late: ")


# -- trainings side by side in a report: it is of one, and says what was found in each


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
    windows = [loop(13, phases, pid=pid) for pid, _, _, phases, _ in ranks]
    return extend(session, [thread(t, cpu, 0.0, pid) for t in range(1, 14) for pid, *_, cpu in ranks], windows)


def test_each_is_listed_with_its_own_steps_and_findings() -> None:
    session = two_trainings()
    report = report_of(session, Verdicts(session).judge_run(), "run.jsonl")
    first, second = report.trainings
    assert [(each.number, each.ranks, each.in_focus) for each in (first, second)] == [(1, 2, True), (2, 2, False)]
    assert second.command == ["python", "train60.py"]
    assert "straggler_rank" not in {finding.rule for finding in (*report.findings, *first.findings)}
    assert second.findings[0].rule == "straggler_rank"
    assert "for rank 1" in second.findings[0].headline
    assert [(rank.training, rank.rank) for rank in report.ranks] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert "on each of 2 ranks, one of 2 trainings side by side" in report.summary
    assert session.trainer() == 100  # the focus is as it was
    msgspec.convert(msgspec.to_builtins(report), Report)


def test_processes_without_ranks_are_not_called_so(tmp_path: Path, page_of) -> None:
    records = [header()]
    for pid in (100, 200):
        records.append(process(pid, command=["python", f"train{pid}.py"]))
        records += loop(13, EVEN, pid=pid)
    lines = text_report(report_of(session_of(*records), [], "run.jsonl")).splitlines()
    assert "Training processes" in lines and "Ranks" not in lines
    page = page_of(log_of(tmp_path / "run.jsonl", records))
    assert "<h2>Training processes</h2>" in page and "<th>process</th>" in page and "<h2>Ranks</h2>" not in page
    assert "Ranks" in text_report(report_of(two_trainings(), [], "run.jsonl")).splitlines()


def test_a_trace_of_another_node_has_the_pid_that_its_node_knows() -> None:
    trace = TraceTaken(t=2.0, pid=id_on_node(1, 200), begin_s=1.0, end_s=2.0, steps=5, wanted=5, file="t.json.gz")
    (found,) = report_of(session_of(header(), process(100), trace), NONE).traces
    assert found.pid == 200
    assert found.text[0].startswith("Trace of 5 steps of process 200: ")


# -- the report of a run whose launcher has started all ranks anew, as torchrun --max-restarts does


PHASES = {"data": 10, "forward": 30, "backward": 60}
NONE: list[Finding] = []


def start(number: int, at_s: float, windows: int, ranks: int = 2) -> list[Record]:
    """One start of ranks: they live for so many windows, and then all end."""
    pids = [100 + 10 * number + rank for rank in range(ranks)]
    facts = {"world_size": ranks, "ppid": 50, "python": "3.11.7", "start_unix_s": 1.7e9 + at_s}
    found: list[Record] = [process(pid, rank=rank, t=at_s, **facts) for rank, pid in enumerate(pids)]
    for window in range(windows):
        for pid in pids:
            t = at_s + 1.0 + window
            found += thread(t, 0.9, 0.0, pid), steps(t, PHASES, pid=pid, first_index=10 * window)
    ended = {"t": at_s + windows + 1.5, "ended": True, **facts}
    return [*found, *(process(pid, rank=rank, **ended) for rank, pid in enumerate(pids))]


def test_of_many_ranks_only_the_latest_starts_are_summed_up() -> None:
    starts = start(0, 0.0, 6, 9), start(1, 10.0, 6, 9)
    report = report_of(session_of(header(pid=50), starts, Exit(t=40.0, pid=50, exit_code=0)), NONE)
    assert len(report.ranks) == 18 and report.ranks_summary is None
    starts = start(0, 0.0, 6, 20), start(2, 10.0, 9, 20)
    summary = report_of(session_of(header(pid=50), starts, Exit(t=40.0, pid=50, exit_code=0)), NONE).ranks_summary
    assert summary is not None and (summary.count, summary.steps) == (20, [90, 90, 90])


def test_each_rank_is_there_once_and_says_how_often_it_was_restarted() -> None:
    """Two starts that failed, the second of them before its first step, and one that came to its end."""
    starts = start(0, 0.0, 6), start(1, 10.0, 0), start(2, 20.0, 12)
    session = session_of(header(pid=50), starts, Exit(t=40.0, pid=50, exit_code=0))
    found = [(row.rank, row.pid, row.restarts) for row in rank_rows(session.over("recent"))]
    assert found == [(0, 120, 2), (1, 121, 2)]
    report = report_of(session, NONE, "run.jsonl")
    text = text_report(report)
    assert "rank 0, restarted 2 times: 120 steps" in text
    assert "rank 0, an earlier start: 60 steps" in text
    assert "on each of 2 ranks" in report.summary
    told = [(rank.pid, rank.state == "restarted", rank.restarts) for rank in report.ranks]
    assert told == [(100, True, None), (120, False, 2), (101, True, None), (121, False, 2)]
