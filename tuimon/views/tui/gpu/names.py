"""Which GPU it is, and what is wrong with it, in the words of tables and heads of cards."""

from __future__ import annotations

from tuimon.session.rows import GpuRow
from tuimon.views.format import count, plain
from tuimon.views.tui.drawing.lines import Line, Span, line
from tuimon.views.tui.gpu.figures import GpuView, fitting, slowed_words, stale_badge

#: Meanings of the driver's most frequent error numbers (NVIDIA's XID documentation).
XIDS = {
    13: "a kernel failed (out of bounds, illegal instruction)",
    31: "a kernel touched memory that is not its own",
    43: "the GPU stopped a process's work",
    45: "work was taken off the GPU: its process was ended",
    48: "memory error that could not be corrected",
    61: "the GPU's microcontroller reported a fault",
    62: "the GPU's microcontroller halted",
    63: "faulty memory is taken out of use",
    64: "faulty memory could not be taken out of use",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many corrected memory errors",
    94: "memory error, contained to one process",
    95: "memory error, not contained: reset the GPU",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor failed",
}


def alarm_lines(gpu: GpuRow, width: int) -> list[Line]:
    """One line for each kind of trouble; none on a sound GPU."""
    lines = []
    if gpu.xids:
        newest = gpu.xids[-1]
        others = len(gpu.xids) - 1
        badge = f" XID {newest} "
        what = XIDS.get(newest, "reported by the driver")
        more = f" (+{others} more)" if others else ""
        lines.append(_alarm(badge, (what + more, what, ""), width))
    if gpu.latest.ecc_errors:
        number = count(gpu.latest.ecc_errors)
        lines.append(_alarm(f" ECC {number} ", ("uncorrected memory errors since the driver was loaded",
                                                "uncorrected memory errors", ""), width))  # fmt: skip
    return lines


def _alarm(badge: str, texts: tuple[str, ...], width: int) -> Line:
    return fitting([line((badge, "critical badge"), (f" {text}", "critical")) for text in texts], width)


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
