"""The sheet of a standstill, and the same in headless lines and in reports."""

from __future__ import annotations

import io

import pytest

from tests.session.records import header, process, session_of, steps
from tests.views.playback import Playback
from tests.views.tui.running_app import running
from tests.views.tui.running_app import text as pane_text
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import Collectives, Frame, RankCollective, StackGroup, StandingProcess, Standstill
from tuimon.views.headless import HeadlessView
from tuimon.views.report.summary import Page, report_of
from tuimon.views.report.text import text_report
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.sheets.standstill_sheet import StandstillSheet, standstill_lines

TORCH = "/venv/lib/python3.11/site-packages/torch"
BACKWARD = [
    Frame("/me/train.py", 48, "main", "loss.backward()", True),
    Frame(f"{TORCH}/_tensor.py", 626, "backward"),
    Frame(f"{TORCH}/autograd/graph.py", 825, "_engine_run_backward"),
]
READING = [
    Frame("/me/train.py", 44, "main", "for batch in loader:", True),
    Frame(f"{TORCH}/utils/data/dataloader.py", 733, "__next__"),
    Frame("/me/data.py", 40, "read\x1b[2J", "with open(path) as file:", True),
]
HANG = Finding(
    rule="hang",
    severity="critical",
    headline="nothing has moved in any of 8 ranks for 18 s: rank 5 in open() data.py:40",
    fixes=(Fix("look"),),
)


def records(ranks=8):
    """All ranks but rank 5 in backward, and that one in open()."""
    rows = [StandingProcess(100 + rank, "trainer", rank) for rank in range(ranks)]
    groups = [
        StackGroup(BACKWARD, 0, [(100 + rank, 100 + rank) for rank in range(ranks) if rank != 5]),
        StackGroup(READING, 3, [(105, 105)]),
    ]
    taken = Standstill(t=20.0, pid=0, quiet_s=18.0, processes=rows, groups=groups, idle=4)
    return [header(), process(), steps(2.0, {"forward": 50}), taken]


def shown(session, width=100):
    past = next(reversed(session.standstills.past), None)
    return [text_of(row).rstrip() for row in standstill_lines(past, session, width)]


def test_who_holds_the_others_up_comes_first():
    lines = shown(session_of(*records()))
    assert lines[0] == "nothing moved for 18s, from 2.0s on, step 10"
    first, second = (
        next(i for i, row in enumerate(lines) if row.startswith(f"█ {who}")) for who in ("Rank 5", "7 ranks")
    )
    assert first < second
    assert lines[first].split() == ["█", "Rank", "5", "in", "open()", "data.py:40", "pid", "105"]
    assert lines[first + 1].split() == ["data.py:40", "read()", "with", "open(path)", "as", "file:"]
    assert "ranks 0-4, 6-7 · pids 100, 101, 102, 103 …" in lines[second]
    assert lines[-1] == "not listed: 4 idle helper threads"
    assert next(row for row in lines if row.startswith("ranks")).count("█") == 8


@pytest.mark.parametrize("width", [60, 76, 110])
def test_it_keeps_to_the_width(width):
    session = session_of(*records(64))
    past = session.standstills.past[-1]
    assert all(cells(row) <= width for row in standstill_lines(past, session, width))


def test_before_any_and_after_it_went_on():
    assert "No standstill so far" in shown(session_of(header()))[0]
    lines = shown(session_of(*records(), steps(43.0, {"forward": 50}, first_index=10)))
    assert lines[0].startswith("nothing moved for 41s") and lines[1].endswith("; it went on")


async def test_its_key_opens_it_and_a_hang_points_to_it():
    async with running(Playback(records(), [HANG])) as (app, pilot):
        assert "HANG" in pane_text(app, "verdict")
        app.tick()
        assert [note.message for note in app._notifications] == [
            "nothing has moved for 18s: S shows where all ranks are"
        ]
        await pilot.press("S")
        assert isinstance(app.screen, StandstillSheet)
        assert any("Rank 5 in open()" in text_of(row) for row in app.screen.body.lines)


def test_in_headless_lines_once_a_hang():
    stream = io.StringIO()
    view, session = HeadlessView(stream), session_of(*records())
    view.show(session, ())
    assert "all stacks" not in stream.getvalue()
    for _ in range(2):
        view.show(session, (HANG,))
    told = stream.getvalue()
    assert told.count("hang: all stacks, taken 18 s after the last progress") == 1 and "\x1b" not in told
    assert "hang:   rank 5 in open() data.py:40: with open(path) as file:" in told
    assert "hang:   7 ranks in backward() train.py:48 (ranks 0-4, 6-7): loss.backward()" in told


def test_in_reports():
    session = session_of(*records(), steps(43.0, {"forward": 50}, first_index=10))
    report = report_of(session, (), "a.jsonl")
    (one,) = report["standstills"]
    assert (one["at_s"], one["lasted_s"], one["step"], one["groups"][0]["ranks"]) == (2.0, 41.0, 10, [5])
    assert one["text"].endswith("rank 5 in open() data.py:40, 7 ranks in backward() train.py:48")
    assert "Standstills\n  nothing moved for 41s" in text_report(report)
    assert "standstills" not in report_of(session_of(header()), (), "a.jsonl")
    from tuimon.views.report.page import as_html

    page = as_html([Page(report, session)])
    assert 'data-part="standstills"' in page and "rank 5 in open() data.py:40" in page


def test_collectives_that_do_not_end_are_shown_and_reported():
    rows = [RankCollective(rank, "0:tp\x1b[2J", 7, "all_reduce", 7) for rank in range(7)]
    said = Collectives(t=21.0, pid=0, ranks=[*rows, RankCollective(7, "0:tp\x1b[2J", 6, "all_reduce")])
    session = session_of(*records(), said)
    lines = shown(session)
    assert "flight recorder: rank 7 has not entered all_reduce #7, in which ranks 0-6 wait" in "\n".join(lines)
    assert all("\x1b" not in line for line in lines)
    (past,) = report_of(session, [], "run.jsonl")["standstills"]
    assert "rank 7 has not entered all_reduce #7" in past["text"]
    assert past["collectives"][0]["missing"] == [7]
