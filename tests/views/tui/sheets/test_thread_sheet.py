"""A thread's sheet: latest stack and code."""

import asyncio

from tests.session.records import threads
from tests.session.stacks.profiles import MAIN
from tests.views.tui.profile.samples import play
from tests.views.tui.running_app import running
from tuimon.views.tui.sheets.thread_sheet import ThreadSheet


class FakeCloseUp:
    """Code that a test supplies."""

    def __init__(self):
        self.requests = []

    def code(self, file, line, process, not_after_unix_s=None):
        self.requests.append((file, line))
        return [(n, f"    line {n}") for n in range(line - 5, line + 6)]


def sheet(app):
    return "\n".join("".join(span.text for span in row) for row in app.screen.body.lines)


async def settled(app, pilot):
    await asyncio.wait_for(app.workers.wait_for_complete(), 20)
    await pilot.pause()


async def test_the_latest_stack_with_code_around_its_line():
    monitor = play()
    monitor.closeup = FakeCloseUp()
    async with running(monitor, (120, 60)) as (app, pilot):
        await pilot.press("enter")
        await settled(app, pilot)
        app.tick()
        assert isinstance(app.screen, ThreadSheet)
        rows = sheet(app).splitlines()
        first = next(i for i, row in enumerate(rows) if row.startswith("latest stack, innermost first"))
        assert [row.split("(")[0].split()[-1] for row in rows[first + 1 : first + 5]] == [
            "select", "_try_get_data", "__next__", "main"
        ]  # fmt: skip
        assert rows[first + 4].startswith("▸ train.py:44")
        assert rows[first + 5 : first + 16] == [f"    {n} {'▏' if n == 44 else '│'} line {n}" for n in range(39, 50)]
        assert monitor.closeup.requests == [("/home/me/project/train.py", 44)]  # once


async def test_a_thread_that_is_gone_stays_open_as_ended():
    monitor = play()
    async with running(monitor) as (app, pilot):
        await pilot.press("end", "enter")
        assert "autograd" in sheet(app) and "no stack in the last samples" in sheet(app)
        monitor.session.add(threads(9.0, (MAIN, "python", 0.4, "waiting"), pid=MAIN))
        app.tick()
        assert "ended" in sheet(app)
