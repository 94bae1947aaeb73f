"""The sheet of findings: everything about each, live, with the code that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.worker import Worker, WorkerState

from tuimon.diagnosis import unjudged
from tuimon.records import Place
from tuimon.views.tui.drawing.lines import Line
from tuimon.views.tui.sheets.code_around import Code, CodeAround
from tuimon.views.tui.sheets.finding_lines import changes_lines, findings_lines, unjudged_lines
from tuimon.views.tui.sheets.sheet import Sheet

if TYPE_CHECKING:
    from tuimon.monitor.monitor import Monitor


class FindingsSheet(Sheet):
    """Findings first, then how the verdict changed, then what could not be judged; files are read off this thread."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__("Findings", self._lines)
        self._monitor = monitor
        self._code = CodeAround(self, monitor.closeup)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Code was read."""
        if event.state in (WorkerState.SUCCESS, WorkerState.ERROR):
            self.update()

    def _lines(self, width: int) -> list[Line]:
        monitor = self._monitor
        parts = (
            findings_lines(monitor.findings, width, self._code_of),
            changes_lines(monitor.changes, monitor.session.start_s, width),
            unjudged_lines(unjudged(monitor.session), width),
        )
        lines: list[Line] = []
        for part in parts:
            lines += [(), *part] if lines and part else part
        return lines

    def _code_of(self, where: Place) -> Code:
        """The code around a place; its process is not known: the first trainer must read it, and all be younger."""
        processes = self._monitor.session.processes()
        starts = [process.start_unix_s for process in processes]
        return self._code.of(where.file, where.line, next(iter(processes), None), min(starts, default=None))
