"""Sheets: the picker, help, a thread's stack, memory, where a run stands still."""

import asyncio
import io

import pytest
from msgspec import structs
from textual.events import MouseScrollDown

from tests.session.records import header, process, session_of, steps, threads
from tests.session.stacks.profiles import MAIN
from tests.views import streams
from tests.views.playback import Playback
from tests.views.tui.profile.samples import play
from tests.views.tui.running_app import notices, running, texts
from tests.views.tui.running_app import text as pane_text
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import (
    PHASES,
    Collectives,
    Frame,
    MemoryHistory,
    MemoryLine,
    Notice,
    RankCollective,
    StackGroup,
    StandingProcess,
    Standstill,
)
from tuimon.session.session import Session
from tuimon.views.headless import HeadlessView
from tuimon.views.report.page import as_html, html_page
from tuimon.views.report.report import report_of
from tuimon.views.report.write import text_report
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.drawing.lines import line_width, text_of
from tuimon.views.tui.drawing.moving import MOVES
from tuimon.views.tui.sheets.help import ROLES, TERMS, help_lines, terms_lines
from tuimon.views.tui.sheets.memory_sheet import MemorySheet, memory_sheet_lines
from tuimon.views.tui.sheets.picker import Picker, PickerRow
from tuimon.views.tui.sheets.sheet import Sheet
from tuimon.views.tui.sheets.stack_sheets import ThreadSheet, standstill_lines
from tuimon.views.tui.terminal_app import Capabilities

FOUND = [
    PickerRow(4242, ["python", "train.py", "--lr", "0.1"], "me", 0.98, True),
    PickerRow(5151, ["python", "-m", "torch.distributed.run", "[bold]fine\x1b[31mtune.py"], "me", 0.98, False),
    PickerRow(99, ["python", "漢字.py"], "me", None, True),
    PickerRow(7, ["python", "torchrun"], "me", 0.0, True, helps=True),
]


@pytest.mark.parametrize(
    ("keys", "pid"),
    [
        (("enter",), 4242),
        (("end", "up", "up", "enter"), 4242),
        ((*"TRAIN.py", "enter"), 4242),
        ((*"q漢", "backspace", "backspace", "down", "down", "enter"), 99),
        ((*"nothing like it", "enter", "escape"), None),
        (("ctrl+c",), None),
        ((*"torchrun", "enter"), 7),
    ],
)
async def test_pick(keys, pid):
    app = Picker(FOUND, Capabilities())
    async with app.run_test(size=(100, 20)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
    assert app.return_value == pid


async def test_what_the_list_shows():
    app = Picker(FOUND, Capabilities())
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        rows = [str(option.prompt) for option in app.list.options]
        assert rows[1].split() == ["4242", "me", "98", "%", "yes", "python", "train.py", "-…"]
        assert "no" in rows[2].split() and "–" in rows[3]
        assert rows[4].strip() == "1 more of these runs without a step: type to find them"
        assert all(row.isprintable() for row in rows)


async def test_no_training_runs():
    app = Picker([], Capabilities())
    async with app.run_test(size=(100, 20)) as pilot:
        await pilot.press("enter", "down")
        assert app.is_running
        assert "No training runs" in str(app.list.options[1].prompt)
        await pilot.press("escape")
    assert app.return_value is None


@pytest.mark.parametrize("width", [36, 60, 100])
def test_the_terms_fit_and_explain_every_phase(width):
    lines = terms_lines(width)
    assert all(line_width(row) <= width for row in lines)
    drawn = "\n".join(texts(lines))
    for word in (*PHASES, "inferred", "delay", "own cost", "~", "–"):
        assert word in drawn


def test_every_coloured_term_is_explained():
    assert set(ROLES) - {entry.partition(" | ")[0].strip() for entry in TERMS.splitlines()} == set()


@pytest.mark.parametrize("width", [36, 60, 100])
def test_every_key_of_the_app_is_listed(width):
    lines = help_lines(width)
    assert all(line_width(row) <= width for row in lines)
    listed = {word for row in texts(lines) for word in row[:16].split()}
    names = dict.fromkeys(("question_mark", "escape", "f1", "k", "ctrl+q", *MOVES), "")
    names |= {"slash": "/", "enter": "Enter", "ctrl+c": "Ctrl-C"}
    for binding in TuimonApp.BINDINGS:
        for key in binding.key.split(","):
            shown = names.get(key, key)
            assert not shown or shown in listed, key


@pytest.mark.parametrize(
    ("pane", "term"),
    [
        (None, None),
        ("verdict", "probably"),
        ("step", "GPU span"),
        ("gpu", "━ allocated"),
        ("output", None),
        ("threads", "delay"),
    ],
)
def test_help_begins_with_the_terms_of_a_pane(pane, term):
    before, _, _ = "\n".join(texts(help_lines(100, pane))).partition("The verdict\n")
    assert term in before if term is not None else not before


async def test_help_is_of_the_focused_pane_and_enter_leads_on_to_all_terms():
    async with running(streams.input_bound(5), (120, 60)) as (app, pilot):
        await pilot.press("tab", "question_mark")
        assert sheet(app).startswith("Verdicts") and "The report" in sheet(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "What the numbers mean" in str(app.screen.body.border_title)


async def test_findings_are_chosen_where_their_names_have_no_room():
    monitor = streams.input_bound(5)
    monitor.findings = [streams.INPUT_BOUND, structs.replace(streams.INPUT_BOUND, rule="side_work")]
    async with running(monitor, (1, 1)) as (app, pilot):
        await pilot.press("v", "tab")
        await pilot.pause()
        assert app.screen.rows.index == 1


class FakeCloseUp:
    """Code that a test supplies."""

    def __init__(self):
        self.requests = []

    def code(self, file, line, process, not_after_unix_s=None):
        self.requests.append((file, line))
        return [(n, f"    line {n}") for n in range(line - 5, line + 6)]


def sheet(app):
    return "\n".join("".join(span.text for span in row) for row in app.screen.text.lines)


async def settled(app, pilot):
    await asyncio.wait_for(app.workers.wait_for_complete(), 20)
    await pilot.pause()


async def test_the_latest_stack_with_code_around_its_line():
    monitor = play()
    monitor.closeup = FakeCloseUp()
    async with running(monitor, (120, 60)) as (app, pilot):
        await pilot.press("up", "enter")
        await settled(app, pilot)
        app.tick()
        assert isinstance(app.screen, ThreadSheet)
        rows = sheet(app).splitlines()
        first = next(i for i, row in enumerate(rows) if row.startswith("latest stack, innermost first"))
        assert [row.split("(")[0].split()[-1] for row in rows[first + 1 : first + 5]] == [
            "select", "_try_get_data", "__next__", "main"
        ]  # fmt: skip
        assert rows[first + 4].startswith("▸ train.py:44")
        assert rows[first + 5 : first + 12] == [f"    {n} {'▏' if n == 44 else '│'} line {n}" for n in range(41, 48)]
        assert monitor.closeup.requests == [("/home/me/project/train.py", 44)]  # once


async def test_a_thread_that_is_gone_stays_open_as_ended():
    monitor = play()
    async with running(monitor) as (app, pilot):
        await pilot.press("end", "enter")
        assert "autograd" in sheet(app) and "no stack in the last samples" in sheet(app)
        monitor.session.add(threads(9.0, (MAIN, "python", 0.4, "waiting"), pid=MAIN))
        app.tick()
        assert "ended" in sheet(app)


HISTORY = MemoryHistory(
    t=9.0, pid=4242, trigger="asked", device="cuda:0", steps=5, live_bytes=3 << 20, most_bytes=5 << 20, pause_ms=12.0,
    lines=[
        MemoryLine("/home/me/train.py", 20, "main", "x = torch.zeros(n)", True, 2 << 20, 1, 0),
        MemoryLine("/home/me/train.py", 7, "log\x1b[2J", "losses.append(loss)", True, 1 << 20, 5, 200 << 10),
        MemoryLine("", 0, "", "", False, 1 << 10, 1, None),
    ],
)  # fmt: skip
OOM = MemoryHistory(
    t=9.0, pid=4242, trigger="oom", device="cuda:0", steps=0, live_bytes=3 << 30, most_bytes=3 << 30,
    wanted_bytes=1 << 30, lines=[],
)  # fmt: skip


def shown(history: MemoryHistory | None, notice: Notice | None = None, width: int = 100) -> str:
    return "\n".join(text_of(row) for row in memory_sheet_lines(history, notice, width))


def test_lines_largest_first_with_their_growth() -> None:
    drawn = shown(HISTORY)
    assert "5 steps on cuda:0: 3 MiB allocated and not freed, 5 MiB at most" in drawn
    rows = [row.split() for row in drawn.splitlines() if "train.py" in row or ("not known" in row and "KiB" in row)]
    assert rows[0][:6] == ["2", "MiB", "1", "0", "train.py:20", "main()"]
    assert rows[1][:6] == ["1", "MiB", "5", "+200", "KiB", "train.py:7"]
    assert rows[2][:6] == ["1", "KiB", "1", "–", "not", "known"]
    assert "held the training up for 12 ms" in drawn and "\x1b" not in drawn
    assert all(len(row) <= 60 for row in shown(None, width=60).splitlines()[3:])


def test_why_there_is_nothing() -> None:
    assert "nothing has been recorded yet" in shown(None)
    notice = Notice(t=1.0, pid=0, source="memory", level="warning", message="a profiler is on", hint="end it")
    assert "a profiler is on" in shown(None, notice) and "end it" in shown(None, notice)


def test_an_error_for_want_of_memory() -> None:
    assert "out of memory: 1 GiB could not be allocated on cuda:0" in shown(OOM)


def test_in_headless_lines_it_is_told_once() -> None:
    session, stream = Session(), io.StringIO()
    view = HeadlessView(stream)
    view.show(session, ())
    session.add(HISTORY)
    for _ in range(2):
        view.show(session, ())
    assert stream.getvalue().count("memory: 5 steps on cuda:0") == 1


async def test_its_key_opens_it_and_asks_once_more() -> None:
    async with running(Playback([HISTORY])) as (app, pilot):
        await pilot.press("m")
        assert isinstance(app.screen, MemorySheet)
        asked: list[bool] = []
        app.monitor.record_memory = lambda: asked.append(True) or len(asked) == 1
        await pilot.press("R")
        assert asked == [True] and not notices(app)
        await pilot.press("m")
        assert len(notices(app)) == 1  # where nothing can record, it says so
        assert "train.py:7" in "\n".join(text_of(row) for row in app.screen.text.lines)
        await pilot.press("escape")
        assert not isinstance(app.screen, MemorySheet)


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
    headline="nothing has moved in any of 8 ranks for 18s: rank 5 in open() data.py:40",
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


def standing(session, width=100):
    return [text_of(row).rstrip() for row in standstill_lines(session, width)]


def test_who_holds_the_others_up_comes_first():
    lines = standing(session_of(*records()))
    assert lines[0] == "nothing moved for 18s, from 2.0s on, after step 10"
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
    assert all(line_width(row) <= width for row in standstill_lines(session, width))


def test_after_it_went_on():
    lines = standing(session_of(*records(), steps(43.0, {"forward": 50}, first_index=10)))
    assert lines[0].startswith("nothing moved for 41s") and lines[1].endswith("; it went on")


async def test_its_key_is_offered_once_there_are_stacks_and_opens_it():
    async with running(Playback(records(), [HANG])) as (app, pilot):
        assert "HANG" in pane_text(app, "verdict")
        assert "S stacks" in pane_text(app, "keys")
        await pilot.press("S")
        assert "Standstill" in str(app.screen.body.border_title)
        assert any("Rank 5 in open()" in text_of(row) for row in app.screen.text.lines)


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
    (one,) = report.standstills
    assert (one.at_s, one.lasted_s, one.step, one.groups[0].ranks) == (2.0, 41.0, 10, [5])
    assert one.text.endswith("rank 5 in open() data.py:40, 7 ranks in backward() train.py:48")
    assert "Standstills\n  nothing moved for 41s" in text_report(report)
    assert not report_of(session_of(header()), (), "a.jsonl").standstills
    page = as_html([html_page(session, ())])
    assert 'data-part="standstills"' in page and "rank 5 in open() data.py:40" in page


def test_collectives_that_do_not_end_are_shown_and_reported():
    rows = [RankCollective(rank, "0:tp\x1b[2J", 7, "all_reduce", 7) for rank in range(7)]
    said = Collectives(t=21.0, pid=0, ranks=[*rows, RankCollective(7, "0:tp\x1b[2J", 6, "all_reduce")])
    session = session_of(*records(), said)
    lines = standing(session)
    assert "flight recorder: rank 7 has not entered all_reduce #7, in which ranks 0-6 wait" in "\n".join(lines)
    assert all("\x1b" not in line for line in lines)
    (past,) = report_of(session, [], "run.jsonl").standstills
    assert "rank 7 has not entered all_reduce #7" in past.text
    assert past.collectives[0].missing == [7]


async def test_what_the_mouse_selects_is_copied_and_the_wheel_scrolls():
    async with running(streams.input_bound(5), (80, 24)) as (app, pilot):
        await pilot.press("question_mark")
        await pilot.mouse_down("SheetText", offset=(0, 0))
        await pilot.hover("SheetText", offset=(2, 0))
        await pilot.mouse_up("SheetText", offset=(2, 0))
        await pilot.pause()
        assert app.clipboard == "The"
        assert app.screen.body.scroll_y == 0
        app.screen.text.post_message(MouseScrollDown(None, 3, 3, 0, 1, 0, False, False, False))
        await pilot.pause()
        assert app.screen.body.scroll_y > 0
        await pilot.press("G")
        assert app.screen.body.scroll_y == app.screen.body.max_scroll_y > 0
        await pilot.press("k", "g")
        assert app.screen.body.scroll_y == 0


async def test_a_tick_before_a_sheet_has_its_place_builds_nothing():
    widths = []
    async with running(streams.input_bound(5), (80, 24)) as (app, pilot):
        app.push_screen(Sheet("Early", lambda width: widths.append(width) or []))
        app.screen.update()
        assert not widths
        await pilot.pause()
        assert widths and min(widths) > 0
