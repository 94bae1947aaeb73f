"""How far launches run ahead of the GPU, and how long it idles: in words, and as gauges."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.diagnosis.evidence.gpu.steps import BUSY_IDLE, SMALL_LEAD_US
from tuimon.diagnosis.threshold import MOST
from tuimon.session.rows import GpuTimeRow, LeadRow
from tuimon.views.format import ms, percent
from tuimon.views.gpu_idle import UNKNOWN, idle_share_text
from tuimon.views.tui.drawing.charts import layers
from tuimon.views.tui.drawing.lines import Line, Span, column, line
from tuimon.views.tui.gpu.figures import fitting
from tuimon.views.tui.panes.phase_rows import NAME

_MAIN = "backward begin"
_LEAST_GAUGE, _MOST_GAUGE = 6, 24

#: Its name, its filled parts (ratio, glyph, role), the texts to choose from beside it, the longest first.
_Gauge = tuple[str, list[tuple[float, str, str]], list[str]]


def lead_lines(times: GpuTimeRow, step_ms: float | None, width: int, most: int) -> list[Line]:
    """One line, or two: the lead, and the idle share."""
    lead, idle = _lead_parts(times, step_ms), idle_share_text(times)
    room = width - NAME - 2
    if most < 2:
        words = lead_words(times)
        offers = [f"{words} · GPU idle {idle}", f"{words} · idle {idle}", *_shorter(words)]
        return _gauges([("lead", lead, offers)], room)
    rows = [("lead", lead, [_lead_and_dry(times), *_shorter(lead_words(times))])]
    rows += [("GPU idle", _idle_parts(times), [f"{idle} of its time" if idle != UNKNOWN else idle, idle])]
    return _gauges(rows, room)


def main_lead(times: GpuTimeRow) -> LeadRow | None:
    """The lead that stands for all: where backward begins, else at the boundary seen most."""
    seen = [lead for lead in times.leads if lead.seen]
    at_backward = next((lead for lead in seen if lead.boundary == _MAIN), None)
    return at_backward or max(seen, key=lambda lead: lead.seen, default=None)


def lead_words(times: GpuTimeRow) -> str:
    """One sentence on who waits for whom."""
    lead = main_lead(times)
    if lead is None or (lead.median_us is None and lead.stream_idle_ratio < MOST):
        error = f" (clocks ±{_ms(times.lead_error_us)})" if times.lead_error_us is not None else ""
        return f"lead not known{error}"
    if not is_behind(lead):
        return f"launches run {_ms(lead.median_us)} ahead"
    ahead = f" ({_ms(lead.median_us)} ahead)" if lead.median_us is not None else ""
    is_busy = times.idle_ratio + times.maybe_idle_ratio < BUSY_IDLE  # then it is the CPU that lets nothing queue up
    return f"the CPU waits for the GPU{ahead}" if is_busy else f"the GPU waits for the CPU{ahead}"


def is_behind(lead: LeadRow) -> bool:
    """True if the GPU mostly has nothing queued when the CPU comes to this boundary."""
    return lead.stream_idle_ratio >= MOST or (lead.median_us is not None and lead.median_us < SMALL_LEAD_US)


def _lead_and_dry(times: GpuTimeRow) -> str:
    lead = main_lead(times)
    dry = (
        f" · ran dry {percent(lead.stream_idle_ratio)} of the time" if lead and lead.stream_idle_ratio >= 0.005 else ""
    )
    return lead_words(times) + dry


def _shorter(words: str) -> list[str]:
    return [
        words,
        words.removeprefix("the ").removeprefix("lead "),
        words.partition(" (")[0],
        words.removeprefix("launches run "),
    ]


def _lead_parts(times: GpuTimeRow, step_ms: float | None) -> list[tuple[float, str, str]]:
    """The lead against the length of a step."""
    lead = main_lead(times)
    if lead is None or lead.median_us is None or not step_ms:
        return []
    return [(min(max(lead.median_us, 0.0) / 1000 / step_ms, 1.0), "━", "warning" if is_behind(lead) else "benign")]


def _idle_parts(times: GpuTimeRow) -> list[tuple[float, str, str]]:
    role = "warning" if times.idle_ratio >= BUSY_IDLE else "text"
    return [(min(times.idle_ratio, 1.0), "━", role), (min(times.maybe_idle_ratio, 1.0 - times.idle_ratio), "┄", role)]


def _gauges(rows: Sequence[_Gauge], room: int) -> list[Line]:
    """``lead  ━━━━────  launches run 38 ms ahead``, all gauges alike: the longest texts that leave room for one."""
    texts = [next((text for text in offers if len(text) <= room - _LEAST_GAUGE), None) for _, _, offers in rows]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        fits = [[line((column(name, NAME), "dim"), (text, "text")) for text in offers] for name, _, offers in rows]
        return [fitting(variants, room + NAME + 2) for variants in fits]
    width = min(room - max(map(len, known)), _MOST_GAUGE)
    return [
        (Span(column(name, NAME), "dim"), *layers(parts, width), *line("  ", (text, "text")))
        for (name, parts, _), text in zip(rows, known, strict=True)
    ]


def _ms(value_us: float | None) -> str:
    return ms(None if value_us is None else value_us / 1000)
