"""Bars and braille charts: pure functions (values, width, height, lo, hi) -> lines of characters."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tuimon.views.scale import mean, means, spread
from tuimon.views.tui.drawing.lines import Line, Span

_LOWER = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# Dots of one column of a braille cell filled from the bottom, 0 to 4 high: left column, right column.
_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
_BRAILLE = 0x2800


def bar(ratio: float | None, width: int) -> str:
    """A horizontal bar of exactly ``width`` cells in steps of an eighth; a ratio above 0 shows at least one."""
    if ratio is None or width <= 0:
        return " " * max(width, 0)
    eighths = round(min(max(ratio, 0.0), 1.0) * width * 8)
    if ratio > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def layers(parts: Sequence[tuple[float, str, str]], width: int, behind: int = 0) -> Line:
    """A thin gauge of parts (ratio, glyph, role) one after another on a track: ``width`` cells, and ``behind`` blank.

    The ends are rounded, not the parts, so that together they fill as many cells as their sum would. A part that is not
    0 shows at least one cell while there is room.
    """
    spans: list[Span] = []
    total, at = 0.0, 0
    for ratio, glyph, role in parts:
        total += max(ratio, 0.0)
        end = min(max(round(total * width), at + (ratio > 0)), width)
        if end > at:
            spans.append(Span(glyph * (end - at), role))
        at = end
    track = "─" * (width - at) + " " * behind
    return (*spans, Span(track, "track")) if track else tuple(spans)


def chart(values: Sequence[float | None], width: int, height: int, lo: float, hi: float) -> list[str]:
    """A filled braille chart that fills its width, two values a cell, the newest at the right edge, top line first.

    None leaves a gap; a measured value shows at least one dot; what lies above ``hi`` is cut off there.
    """
    if width <= 0 or height <= 0:
        return []
    span = hi - lo if hi > lo else inf
    dots = [
        None if value is None else max(1, min(height * 4, round((value - lo) / span * height * 4)))
        for value in spread(values, 2 * width, mean)
    ]
    rows = []
    for base in range(4 * (height - 1), -1, -4):
        codes = (_LEFT[_within(dots[2 * x], base)] | _RIGHT[_within(dots[2 * x + 1], base)] for x in range(width))
        rows.append("".join(chr(_BRAILLE + code) if code else " " for code in codes))
    return rows


def stacked(
    values: Sequence[Sequence[float] | None], roles: Sequence[str], width: int, height: int, hi: float
) -> list[Line]:
    """A stacked area chart from 0 to ``hi`` that fills its width, the newest value at the right edge, top line first.

    The first part of a value lies on top, as it comes first in the list next to the chart. Each cell is cut in eighths;
    where two parts meet in it, one is drawn on the other: role ``forward on:data``.
    """
    bounds = [_bounds(value, height * 8, hi) for value in spread(values, width, means)]
    lines: list[Line] = []
    for y in reversed(range(height)):
        spans: list[Span] = []
        for ends in bounds:
            text, role = _stacked_cell(ends, roles, y * 8)
            if spans and (spans[-1].role == role or (text == " " and " on:" not in spans[-1].role)):
                spans[-1] = Span(spans[-1].text + text, spans[-1].role)
            else:
                spans.append(Span(text, role))
        lines.append(tuple(spans))
    return lines


def _bounds(value: Sequence[float] | None, most: int, hi: float) -> list[int]:
    """The end of each part, counted in eighths from the bottom, the last part first."""
    if value is None or hi <= 0:
        return []
    ends, total = [], 0.0
    for part in reversed(value):
        total += part
        ends.append(min(round(total / hi * most), most))
    if ends and ends[-1] == 0:
        ends[-1] = 1
    return ends


def _stacked_cell(ends: Sequence[int], roles: Sequence[str], base: int) -> tuple[str, str]:
    """One cell: the two parts that fill most of it, the lower one in front."""
    parts: list[tuple[int, str]] = []  # eighths, role; from the bottom
    start = base
    for number, end in enumerate(ends):
        filled = min(end, base + 8) - start
        if filled > 0:
            parts.append((filled, roles[len(ends) - 1 - number]))
            start += filled
    if not parts:
        return " ", ""
    space = base + 8 - start
    if len(parts) == 1 or space:  # at the surface, the part on top decides
        full = 8 - space
        return _LOWER[full], max(parts)[1] if full < 8 or len(parts) == 1 else parts[-1][1]
    biggest = sorted(sorted(range(len(parts)), key=lambda i: -parts[i][0])[:2])
    lower, upper = parts[biggest[0]], parts[biggest[1]]
    eighths = min(max(round(8 * lower[0] / (lower[0] + upper[0])), 1), 7)
    return _LOWER[eighths], f"{lower[1]} on:{upper[1]}"


def tinted(rows: Sequence[str], family: str, *, has_top: bool = False) -> list[Line]:
    """The chart's lines with its edge brighter than its body: roles ``family-edge`` and ``family-body``.

    ``has_top``: a line shows where its scale ends.
    """
    lines: list[Line] = []
    above = ""
    for row in rows:
        spans: list[Span] = []
        text, role = "", ""
        for x, dots in enumerate(row):
            inside = dots == "⣿" and above[x : x + 1].strip() != ""
            char = "▔" if dots == " " and has_top and not lines else dots
            own = "track" if char == "▔" else role if char == " " else f"{family}-body" if inside else f"{family}-edge"
            if own != role and text:
                spans.append(Span(text, role))
                text = ""
            text, role = text + char, own
        spans.append(Span(text, role))
        lines.append(tuple(spans))
        above = row
    return lines


def _within(dots: int | None, base: int) -> int:
    return 0 if dots is None else max(0, min(4, dots - base))
