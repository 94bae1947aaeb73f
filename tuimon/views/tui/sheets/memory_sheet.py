"""The sheet of torch's memory: allocations of the recorded steps that are still in use, by line, largest first."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from tuimon.monitor.monitor import Monitor
from tuimon.records import MemoryHistory, Notice
from tuimon.sources.memory import RECORDED_STEPS
from tuimon.views.format import advice, plain, size
from tuimon.views.run_text import limits_text, memory_head
from tuimon.views.tui.drawing.lines import Line, Span, line, paragraph, places_width
from tuimon.views.tui.sheets.sheet import Sheet, frame_line

_HINT = f"records {RECORDED_STEPS} steps: which lines allocate memory that is not freed"
_NUMBER = 10


def memory_sheet_lines(
    history: MemoryHistory | None, notice: Notice | None, width: int, *, is_live: bool = True
) -> list[Line]:
    """The figures, or why there are none; ``is_live``: True if memory can be recorded now."""
    lines: list[Line] = [(), line(("R", "key bold"), (f" {_HINT}", "dim"))] if is_live else []
    if notice is not None:
        lines += [(), *paragraph(plain(advice(notice.message, notice.hint)), width, "warning")]
    if history is None:
        return [*lines, (), line(("nothing has been recorded yet", "dim"))]
    lines += [(), *paragraph(memory_head(history), width, "strong"), ()]
    lines.append(line((f"{'live':>{_NUMBER}}{'blocks':>{_NUMBER}}{'a step':>{_NUMBER}}  line", "dim")))
    spot = places_width(history.lines, width // 2)
    for each in history.lines:
        growth = "–" if each.growth_bytes is None else f"+{size(each.growth_bytes)}" if each.growth_bytes else "0"
        lines.append(
            line(
                (f"{size(each.live_bytes):>{_NUMBER}}", "strong"),
                (f"{each.blocks:>{_NUMBER}}", "text"),
                (f"{growth:>{_NUMBER}}", "warning" if each.growth_bytes else "dim"),
                *(frame_line(each, spot, Span("  ")) if each.file else line("  ", ("not known", "dim"))),
            )
        )
    if history.folded_bytes:
        lines.append(line((f"{size(history.folded_bytes):>{_NUMBER}}  in other lines", "dim")))
    for note in limits_text(history):
        lines += [(), *paragraph(note, width, "dim")]
    return lines


class MemorySheet(Sheet):
    """The findings of the latest recording, live. ``R`` records again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("R,m", "record", show=False)]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__("Memory of torch, by line", self._lines)
        self._monitor = monitor

    def action_record(self) -> None:
        if not self._monitor.record_memory():
            self.notify("cannot record: the run is not live, or --no-markers is set", markup=False)
        self.update()

    def _lines(self, width: int) -> list[Line]:
        session = self._monitor.session
        histories = session.memory_history
        pids = [pid for pid in session.trainers() if pid in histories] or list(histories)[-1:]
        latest = max((histories[pid] for pid in pids), key=lambda history: history.t, default=None)
        return memory_sheet_lines(latest, session.notices.get("memory"), width, is_live=self._monitor.is_live)
