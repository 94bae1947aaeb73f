"""The table of a run of scenarios, for people."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tests.scenarios.judging import Judgement

_COLUMNS = (
    ("scenario", 28), ("expected", 30), ("got", 32), ("place", 32), ("share err", 9), ("verdict", 7),
    ("predicted", 10), ("measured", 8), ("others", 6), ("steps", 13), ("false alarms, early findings", 28),
)  # fmt: skip
HEAD = "  ".join(f"{name:<{width}}" for name, width in _COLUMNS).rstrip()
#: A predicted speed-up may be off by this much.
GAIN_ERROR = 0.25


def line(row: Judgement) -> str:
    """One row; ``!`` marks what is wrong, ``~`` a gain that cannot be compared because others used the cores."""
    scenario = row.scenario
    expected = "/".join(filter(None, (scenario.rule, scenario.cause))) or "(healthy)"
    wrong_place = row.place_right is False
    cells = (
        scenario.name,
        expected,
        row.got + ("" if row.right else " !"),
        row.place + (" !" if wrong_place else ""),
        "-" if row.share_error is None else f"{100 * row.share_error:.1f} pts",
        "-" if row.verdict_s is None else f"{row.verdict_s:.0f} s",
        _times(row.predicted) + _gain_mark(row),
        _times(row.measured),
        f"{row.others_cores:.1f}",
        f"{row.steps_counted} of {row.steps}" + ("" if row.steps_counted == row.steps else " !"),
        ", ".join((*row.false_alarms, *(f"early {name}" for name in row.early))) or "-",
    )
    return "  ".join(f"{cell:<{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True)).rstrip()


def totals(rows: Sequence[Judgement], expected_rows: int) -> str:
    """The sums under the table."""
    placed = [row for row in rows if row.place_right is not None]
    times = [row.verdict_s for row in rows if row.verdict_s is not None]
    gains = [abs(row.gain_error) for row in rows if row.gain_error is not None]
    errors = [row.share_error for row in rows if row.share_error is not None]
    healthy = [row for row in rows if row.scenario.rule is None]
    doubtful = [f"{row.scenario.name} ({row.measured:.2f}x)" for row in rows if row.is_label_doubtful]
    return "\n".join(
        (
            "",
            f"primary right   {sum(row.right for row in rows)} of {expected_rows}",
            f"place right     {sum(bool(row.place_right) for row in placed)} of {len(placed)}",
            f"false alarms    {sum(bool(row.false_alarms) for row in healthy)} of {len(healthy)} healthy runs",
            f"early findings  in {sum(bool(row.early) for row in rows)} of {len(rows)} runs",
            f"steps exact     {sum(row.steps_counted == row.steps for row in rows)} of {len(rows)}",
            f"share error     median {100 * median(errors):.1f} points" if errors else "share error     -",
            f"time to verdict median {median(times):.0f} s of {len(times)}" if times else "time to verdict -",
            f"gain within {100 * GAIN_ERROR:.0f} %  {sum(g <= GAIN_ERROR for g in gains)} of {len(gains)}",
            *([f"hardly faster without their fault: {', '.join(doubtful)}"] if doubtful else []),
        )
    )


def _gain_mark(row: Judgement) -> str:
    if row.predicted is None or row.measured is None:
        return ""
    if row.gain_error is None:
        return " ~"
    return "" if abs(row.gain_error) <= GAIN_ERROR else " !"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
