"""The table of predicted and measured gains, for people."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gain_truth.judging import CLOSE, Tried

_WIDTHS = (6, 32, 9, 16, 7, 13, 9, 6, 60)
HEAD = "  ".join(
    f"{name:<{width}}"
    for name, width in zip(
        ("seed", "finding", "severity", "change", "predicted", "range", "measured", f"{100 * CLOSE:.0f} %", "fix"),
        _WIDTHS,
        strict=True,
    )
).rstrip()


def line(row: Tried) -> str:
    """One fix."""
    fix = row.fix
    close = "-" if row.is_close is None else "yes" if row.is_close else "no"
    cells = (
        str(row.seed),
        row.finding,
        row.severity,
        row.change or "-",
        _times(row.predicted),
        f"{_times(fix.low)}-{_times(fix.high)}",
        _times(row.measured),
        close,
        fix.action,
    )
    return "  ".join(f"{cell[:width]:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def totals(rows: Sequence[Tried]) -> str:
    """By kind of fix, and of all: estimates that are close, and ranges that hold the truth."""
    kinds = sorted({row.kind for row in rows})
    lines = ["", f"{'fix':<20}  {'close':>9}  {'in range':>9}  not tried"]
    lines += [_total(kind, [row for row in rows if row.kind == kind]) for kind in kinds]
    first = {}
    for row in rows:
        first.setdefault(row.seed, row)
    lines.append(_total("best of each script", list(first.values())))
    return "\n".join([*lines, _total("all", rows)])


def _total(name: str, rows: Sequence[Tried]) -> str:
    close = [row.is_close for row in rows if row.is_close is not None]
    held = [row.is_in_range for row in rows if row.is_in_range is not None]
    return (
        f"{name:<20}  {sum(close):>3} of {len(close):>2}  {sum(held):>3} of {len(held):>2}"
        f"  {sum(row.measured is None for row in rows)}"
    )


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
