"""Everything that shows a log or a folder of logs: report, diff, exports, headless lines, metrics, the screen."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
from collections.abc import Callable, Iterator

from tests.views.playback import Playback
from tests.views.tui.running_app import running
from tuimon.cli.commands import diff, export, report
from tuimon.diagnosis import diagnose
from tuimon.errors import TuimonError
from tuimon.session.session import Session
from tuimon.sources.log.joined.opening import choose, read_logs
from tuimon.views.headless import HeadlessView
from tuimon.views.metrics.prometheus import text_of
from tuimon.views.metrics.snapshot import RankLabels, take

REPORTS = ("text", "json", "html")
DIFFS = ("text", "json")
EXPORTS = ("perfetto", "speedscope", "collapsed")
_KEYS = (
    *("v", "enter", "escape", "escape", "question_mark", "escape", "h", "c", "i", "enter", "escape", "2", "s"),
    *("r", "s", "enter", "escape", "S", "escape", "m", "escape"),
)


def commands(path: str) -> Iterator[tuple[str, str]]:
    """(name, output) of each report and export of a log; an error for the user is an output as well."""
    for name in REPORTS:
        yield f"report {name}", _run(report.main, [path, "--format", name])
    yield "report whole", _run(report.main, [path, "--format", "json", "--full"])
    for name in DIFFS:
        yield f"diff {name}", _run(diff.main, [path, path, "--anyway", "--format", name])
    for name in EXPORTS:
        yield f"export {name}", _run(export.main, [path, "--to", name])
    yield "export of a phase", _run(export.main, [path, "--to", "collapsed", "--phase", "data"])


def headless(path: str) -> str:
    """The lines of a headless run over the log, one for each hundred records, and its summary."""
    out = io.StringIO()
    try:
        _headless(path, HeadlessView(out))
    except TuimonError as error:
        out.write(str(error))
    return out.getvalue()


def metrics(path: str) -> str:
    """The log's last figures as Prometheus reads them."""
    session = Session()
    try:
        for record in read_logs(choose(path)):
            session.add(record)
    except TuimonError as error:
        return str(error)
    snapshot = take(session, diagnose(session), RankLabels())
    return text_of(snapshot).decode()


def screens(path: str, begin: Callable[[], None] = lambda: None) -> str:
    """What the full screen shows of the log, after each of some keys; ``begin`` is called before each."""
    try:
        records = list(read_logs(choose(path)))
    except TuimonError as error:
        return str(error)
    monitor = Playback(records)
    monitor.findings = list(diagnose(monitor.session))
    return asyncio.run(_screens(monitor, begin))


async def _screens(monitor: Playback, begin: Callable[[], None]) -> str:
    out: list[str] = []
    async with running(monitor, (120, 40)) as (app, pilot):
        for key in ("", *_KEYS):
            begin()
            if key:
                await pilot.press(key)
            app.tick()
            await pilot.pause()
            strips = app.screen._compositor.render_strips()
            out += ["".join(segment.text for segment in strip) for strip in strips]
        out.append(app.export_screenshot())
    return "\n".join(out)


def _headless(path: str, view: HeadlessView) -> None:
    session = Session()
    for number, record in enumerate(read_logs(choose(path))):
        session.add(record)
        if number % 100 == 0:
            view.show(session, ())
    findings = diagnose(session)
    view.show(session, findings)
    view.summary(session, findings, path)


def _run(main, words) -> str:  # a command's ``main``
    out, collecting = io.StringIO(), gc.get_threshold()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main(words)
        except TuimonError as error:
            out.write(f"{error.message}\n{error.hint or ''}")
        finally:  # a command collects garbage as suits a process of its own, which ends with it
            gc.set_threshold(*collecting)
    return out.getvalue()
