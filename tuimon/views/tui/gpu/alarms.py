"""Faults that a GPU reports: XID errors of the driver, uncorrected memory errors."""

from __future__ import annotations

from tuimon.session.rows import GpuRow
from tuimon.views.format import count
from tuimon.views.tui.drawing.lines import Line, line
from tuimon.views.tui.gpu.figures import fitting

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
