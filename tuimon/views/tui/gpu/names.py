"""Which GPU it is, and what is wrong with it, in the words of tables and heads of cards."""

from __future__ import annotations

from tuimon.session.rows import GpuRow
from tuimon.views.format import plain
from tuimon.views.tui.drawing.lines import Line, Span, line
from tuimon.views.tui.gpu.alarms import alarm_lines
from tuimon.views.tui.gpu.figures import GpuView, fitting, slowed_words, stale_badge

#: Columns between figures that stand beside one another.
GAP = 2


def name_of(gpu: GpuRow) -> str:
    """``0``; a MIG instance, as part of the line above it, by its profile: ``└ 1g.10gb``."""
    if gpu.latest.parent_uuid is None:
        return str(gpu.latest.index)
    return f"└ {plain(gpu.latest.name).rpartition('MIG ')[2]}"


def mark_of(view: GpuView) -> Span:
    """A dot: bright where the run uses the GPU, in the colour of its trouble where it has one."""
    trouble = trouble_of(view, 80)
    if trouble:
        return Span("● ", trouble[0].role.split()[0])
    return Span("● ", "benign") if view.gpu.used_by_run else Span("· ", "faint")


def trouble_of(view: GpuView, width: int) -> Line:
    """The worst of what is wrong with a GPU; empty on a sound one."""
    slowed = slowed_words(view.gpu)
    alarms = alarm_lines(view.gpu, width)
    if alarms:
        return alarms[0]
    if view.stale or not slowed:
        return stale_badge(view, width)
    causes = ", ".join(plain(cause) for cause in view.gpu.latest.throttle)
    return fitting([line((text, "warning")) for text in (f"slowed: {slowed}", slowed, causes)], width)
