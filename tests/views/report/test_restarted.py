"""The report of a run whose launcher has started all ranks anew, as torchrun --max-restarts does."""

from __future__ import annotations

import pytest

from tests.session.records import header, process, session_of, steps, threads
from tuimon.diagnosis.finding import Finding
from tuimon.records import Exit, Record
from tuimon.session.rank_list import rank_rows
from tuimon.session.session import Session
from tuimon.views.report.summary import report_of
from tuimon.views.report.text import text_report

PHASES = {"data": 10, "forward": 30, "backward": 60}
NONE: list[Finding] = []


def start(number: int, at_s: float, windows: int) -> list[Record]:
    """One start of two ranks: they live for so many windows, and then all end."""
    pids = [100 + 10 * number + rank for rank in range(2)]
    facts = {"world_size": 2, "ppid": 50, "python": "3.11.7", "start_unix_s": 1.7e9 + at_s}
    found: list[Record] = [process(pid, rank=rank, t=at_s, **facts) for rank, pid in enumerate(pids)]
    for window in range(windows):
        for pid in pids:
            t = at_s + 1.0 + window
            found += [
                threads(t, (pid, "python", 0.9, "running", 0.0), pid=pid),
                steps(t, PHASES, pid=pid, first_index=10 * window),
            ]
    return found + [
        process(pid, rank=rank, t=at_s + windows + 1.5, ended=True, **facts) for rank, pid in enumerate(pids)
    ]


@pytest.fixture
def session() -> Session:
    """Two starts that failed, the second of them before its first step, and one that came to its end."""
    return session_of(
        header(pid=50), *start(0, 0.0, 6), *start(1, 10.0, 0), *start(2, 20.0, 12), Exit(t=40.0, pid=50, exit_code=0)
    )


def test_each_rank_is_there_once_and_says_how_often_it_was_restarted(session: Session) -> None:
    assert [(row.rank, row.pid, row.restarts) for row in rank_rows(session.over("recent"))] == [
        (0, 120, 2),
        (1, 121, 2),
    ]
    text = text_report(report_of(session, NONE, "run.jsonl", full=True))
    assert "rank 0, restarted 2 times: 120 steps" in text
    assert "rank 0, an earlier start: 60 steps" in text


def test_a_report_in_json_tells_the_starts_apart(session: Session) -> None:
    ranks = report_of(session, NONE, "run.jsonl", full=True)["ranks"]
    assert [(rank["pid"], rank["state"] == "restarted", rank.get("restarts")) for rank in ranks] == [
        (100, True, None),
        (120, False, 2),
        (101, True, None),
        (121, False, 2),
    ]


def test_while_it_lasts_the_live_start_is_in_focus() -> None:
    live = session_of(header(pid=50), *start(0, 0.0, 6), *start(2, 20.0, 12)[:-2])
    assert live.trainer() == 120
    assert [(row.state, row.restarts) for row in rank_rows(live.over("recent"))] == [("training", 1), ("training", 1)]
