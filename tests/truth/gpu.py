"""Recorded GPU trainings under tuimon: the truth beside its report."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.gpu_simulator.recorded_verdict import PhaseRow, Verdict, verdict
from tests.gpu_simulator.recording import names
from tests.truth.kind import Column, Kind, marked, of

#: Bounds as wide as this still say something.
_NARROW = 0.20


class Recorded(NamedTuple):
    """A recording, as a case."""

    name: str


class Shares(NamedTuple):
    """A row: a recording, or one of its phases; shares of the step's time on the GPU."""

    name: str
    of: PhaseRow | Verdict

    @property
    def holds(self) -> bool | None:
        """True if a phase's true idle time lies between the bounds; None: not a phase."""
        return self.of.holds if isinstance(self.of, PhaseRow) else None

    @property
    def verdict(self) -> str | None:
        """The first finding; None: a phase has none."""
        return marked(self.of.first, self.of.is_right) if isinstance(self.of, Verdict) else None


class GpuTruth(Kind[Recorded, Shares]):
    """Recorded GPU trainings: are GPU times and verdicts true? In % of the step; idle: the compute stream. (30 s)"""

    columns = (
        Column("", 26, lambda row: row.name),
        Column("true: span", -10, lambda row: _percent(getattr(row.of, "span", 1.0))),
        Column("starved", -8, lambda row: _percent(row.of.starved)),
        Column("held up", -8, lambda row: _percent(row.of.held_up)),
        Column("dev idle", -8, lambda row: _percent(row.of.device_idle)),
        Column("ours: span", -10, lambda row: _percent(getattr(row.of, "our_span", None))),
        Column("idle", -14, lambda row: marked(_range(row.of.at_least, row.of.at_most), row.holds)),
        Column("verdict", 30, lambda row: row.verdict),
    )

    def cases(self, args: argparse.Namespace) -> Sequence[Recorded]:
        return [Recorded(name) for name in names()]

    def judged(self, case: Recorded, args: argparse.Namespace) -> Iterator[Shares]:
        found = verdict(case.name)
        yield Shares(case.name, found)
        yield from (Shares(f"  {phase.name}", phase) for phase in found.phases)

    def totals(self, rows: Sequence[Shares]) -> list[str]:
        verdicts = [row.of for row in rows if isinstance(row.of, Verdict)]
        phases = [row.of for row in rows if isinstance(row.of, PhaseRow)]
        widths = [found.width for found in verdicts if found.width is not None]
        praised = [found.name for found in verdicts if found.waits and found.calls_it_busy]
        errors = [abs(phase.our_span - phase.span) for phase in phases if phase.our_span is not None]
        return [
            f"phases whose idle time is within the bounds  {of(phase.holds is True for phase in phases)}",
            f"phase spans, largest error                   {100 * max(errors, default=0.0):.2f} points",
            f"bounds at most {100 * _NARROW:.0f} points wide               {of(w <= _NARROW + 5e-4 for w in widths)}"
            f" recordings ({', '.join(f'{100 * width:.0f}' for width in widths)})",
            f"first verdict right                          {of(found.is_right for found in verdicts)}",
            f"'as it should be' where something waits      {len(praised)} {' '.join(praised)}".rstrip(),
        ]

    def passed(self, rows: Sequence[Shares]) -> bool:
        return all(row.of.is_right for row in rows if isinstance(row.of, Verdict))


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"


def _range(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{100 * low:.1f}..{100 * high:.1f}"
