"""A thread's sheet: latest stack, code, dump on demand."""

import asyncio

from tests.session.records import threads
from tests.session.samples.profiles import MAIN
from tests.views.tui.profile.samples import play
from tests.views.tui.running_app import running
from tuimon.sources.stacks.closeup import Dump
from tuimon.sources.stacks.pyspy.dump import DumpFrame, DumpThread
from tuimon.views.tui.sheets.thread_sheet import ThreadSheet


class FakeCloseUp:
    """Code and dumps that a test supplies."""

    def __init__(self, dump=None):
        self.requests = []
        self._dump = dump

    def code(self, file, line, process, not_after_unix_s=None):
        self.requests.append((file, line))
        return [(n, f"    line {n}") for n in range(line - 5, line + 6)]

    def dump(self, pid):
        self.requests.append(pid)
        return self._dump


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


async def test_a_dump_on_demand():
    stack = [DumpFrame("select", "/usr/lib/python3.11/selectors.py", 415), DumpFrame("main", "/p/train.py", 44)]
    other = DumpThread(1, active=False, owns_gil=False, frames=stack[:1] * 90, tid=77, thread_name="pin [b]x")
    main = DumpThread(2, active=True, owns_gil=True, frames=stack, tid=MAIN, thread_name="MainThread")
    monitor = play()
    monitor.closeup = FakeCloseUp(Dump((other, main)))
    async with running(monitor, (120, 60)) as (app, pilot):
        await pilot.press("enter", "D")
        await settled(app, pilot)
        rows = sheet(app).splitlines()
        assert rows[0] == "dump of all Python threads, innermost first"
        assert rows[1] == f"▸ MainThread · tid {MAIN} · active   holds the GIL "
        assert rows[2].split() == ["selectors.py:415", "select()"]
        assert "pin [b]x · tid 77 · idle" in rows[4]
        await pilot.press("pagedown", "pagedown", "pagedown", "pagedown")
        assert "30 more frames" in sheet(app)


async def test_a_dump_that_fails_says_why():
    monitor = play()
    monitor.closeup = FakeCloseUp(Dump((), "no dump: ptrace is denied", "start it with tuimon run"))
    async with running(monitor) as (app, pilot):
        await pilot.press("enter", "D")
        await settled(app, pilot)
        assert "no dump: ptrace is denied" in sheet(app) and "→ start it with tuimon run" in sheet(app)


async def test_a_thread_that_is_gone_stays_open_as_ended():
    monitor = play()
    async with running(monitor) as (app, pilot):
        await pilot.press("end", "enter")
        assert "autograd" in sheet(app) and "no stack in the last samples" in sheet(app)
        monitor.session.add(threads(9.0, (MAIN, "python", 0.4, "waiting"), pid=MAIN))
        app.tick()
        assert "ended" in sheet(app)
