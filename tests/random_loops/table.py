"""The table of a run of random loops, for people."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from tests.random_loops.judging import Judged
from tests.scenarios.verdict import attached_text, attached_totals

_COLUMNS = (
    ("loop", 9), ("shape", 10), ("truth", 39), ("got", 28), ("place", 17), ("share err", 9), ("steps", 13),
    ("verdict", 7), ("gain", 13), ("false alarms, early findings", 28),
    ("attached", 40),
)  # fmt: skip
HEAD = "  ".join(f"{name:<{width}}" for name, width in _COLUMNS).rstrip()
GAIN_ERROR = 0.25


def line(row: Judged) -> str:
    """One row; ``!`` marks what is wrong."""
    truth = ", ".join(f"{name} {gain:.2f}x" for name, gain in row.gains.items())
    off = row.gain_error is not None and abs(row.gain_error) > GAIN_ERROR
    cells = (
        str(row.plan.seed),
        row.plan.shape,
        truth,
        row.got + ("" if row.right else " !"),
        row.place + (" !" if row.place_right is False else ""),
        "-" if row.share_error is None else f"{100 * row.share_error:.1f} pts",
        f"{row.steps_counted} of {row.steps}" + ("" if row.steps_counted == row.steps else " !"),
        "-" if row.verdict_s is None else f"{row.verdict_s:.0f} s",
        f"{_times(row.predicted)} {_times(row.measured)}" + (" !" if off else ""),
        ", ".join((*row.false_alarms, *(f"early {name}" for name in row.early))) or "-",
        attached_text(row.verdict, row.attached),
    )
    return "  ".join(f"{cell:<{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True)).rstrip()


def totals(rows: Sequence[Judged]) -> str:
    """The sums under the table."""
    placed = [row for row in rows if row.place_right is not None]
    errors = sorted(row.share_error for row in rows if row.share_error is not None)
    gains = [abs(row.gain_error) for row in rows if row.gain_error is not None]
    times = [row.verdict_s for row in rows if row.verdict_s is not None]
    healthy = [row for row in rows if row.healthy]
    return "\n".join(
        (
            "",
            f"primary right   {sum(row.right for row in rows)} of {len(rows)}",
            f"place right     {sum(bool(row.place_right) for row in placed)} of {len(placed)}",
            f"false alarms    in {sum(bool(row.false_alarms) for row in rows)} of {len(rows)} runs,"
            f" {sum(bool(row.false_alarms) for row in healthy)} of {len(healthy)} healthy ones",
            f"warnings        {sum(len(row.alarms) for row in healthy) / max(1, len(healthy)):.2f} a healthy loop"
            f" (warnings and criticals, {sum(bool(row.alarms) for row in healthy)} of {len(healthy)} loops)",
            f"early findings  in {sum(bool(row.early) for row in rows)} of {len(rows)} runs",
            f"steps exact     {sum(row.steps_counted == row.steps for row in rows)} of {len(rows)}",
            f"phase error     median {100 * median(errors):.1f}, p95 {100 * _p95(errors):.1f} points" if errors else "",
            f"time to verdict median {median(times):.0f} s of {len(times)}" if times else "",
            f"gain within {100 * GAIN_ERROR:.0f} %  {sum(gain <= GAIN_ERROR for gain in gains)} of {len(gains)}",
            attached_totals([(row.verdict, row.attached) for row in rows]),
        )
    )


def _p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
