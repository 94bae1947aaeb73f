"""The sheet of torch's memory, and the same in lines."""

from __future__ import annotations

import io

from tests.views.playback import Playback
from tests.views.tui.running_app import running
from tuimon.records import MemoryHistory, MemoryLine, Notice
from tuimon.session.session import Session
from tuimon.views.headless import HeadlessView
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.sheets.memory_sheet import MemorySheet, memory_lines

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
    return "\n".join(text_of(row) for row in memory_lines(history, notice, width))


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
        assert asked == [True] and not app._notifications
        await pilot.press("m")
        assert len(app._notifications) == 1  # where nothing can record, it says so
        assert "train.py:7" in "\n".join(text_of(row) for row in app.screen.body.lines)
        await pilot.press("escape")
        assert not isinstance(app.screen, MemorySheet)
