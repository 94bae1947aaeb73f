"""The table that ``make bench`` prints: what was promised, what was measured, how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

HEADINGS = ("what", "promise", "measured", "noise", "")
ABSENT = "–"


class Spread(NamedTuple):
    """Median of repeated measurements and the quartiles around it."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None of no measurements; of one, the quartiles are the value itself."""
        if not values:
            return None
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))


class Row(NamedTuple):
    """One line: ``promise`` is a limit from above, None where nothing is promised (peers)."""

    what: str
    promise: float | None
    measured: Spread | None
    noise: Spread | None = None
    unit: str = ""
    why_absent: str | None = None  # what to say where nothing was measured


def judged(row: Row) -> str:
    """ "ok" or "over" where there is a promise; "over?" when the excess is within the noise."""
    if row.measured is None:
        return row.why_absent or "not measured"
    if row.promise is None:
        return ""
    if row.measured.median <= row.promise:
        return "ok"
    if row.noise and row.measured.median - row.promise <= (row.noise.high - row.noise.low) / 2:
        return "over? (within the noise)"
    return "over"


def figure(value: float, unit: str) -> str:
    """A value with its unit; ratios with enough digits to judge a promise of 1.003."""
    return f"{value:.4f}{unit}" if unit == "x" else f"{value:.3g} {unit}".strip()


def spread_text(spread: Spread | None, unit: str) -> str:
    """Median, with its quartiles when there are several measurements."""
    if spread is None:
        return ABSENT
    if spread.count == 1:
        return figure(spread.median, unit)
    if unit == "x":
        return f"{spread.median:.4f}x [{spread.low:.4f} .. {spread.high:.4f}]"
    return f"{spread.median:.3g} [{spread.low:.3g} .. {spread.high:.3g}] {unit}".strip()


def cells(row: Row) -> tuple[str, ...]:
    """The texts of a row, one per heading."""
    promise = ABSENT if row.promise is None else f"<= {row.promise:g}{'' if row.unit == 'x' else ' '}{row.unit}"
    return (
        row.what,
        promise,
        spread_text(row.measured, row.unit),
        spread_text(row.noise, row.unit),
        judged(row),
    )


def render(rows: Sequence[Row]) -> str:
    """The whole table as text, columns aligned."""
    return aligned([HEADINGS, *(cells(row) for row in rows)])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a table; the first has the headings."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    texts = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(text.rstrip() for text in [texts[0], "-" * (sum(widths) + 8), *texts[1:]])


def render_markdown(rows: Sequence[Row]) -> str:
    """The same as a Markdown table; what belongs to the row above begins with an ellipsis."""
    texts = [HEADINGS, ("---",) * len(HEADINGS), *(cells(row) for row in rows)]
    return "\n".join("| " + " | ".join(_markdown(text) for text in line) + " |" for line in texts)


def _markdown(text: str) -> str:
    return ("... " + text.strip() if text.startswith("  ") else text).replace("|", "\\|")
