"""What a comparison says of two runs whose truth is known, counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.session.records import session_of
from tuimon.diagnosis.comparison.compare import compare
from tuimon.diagnosis.comparison.figures import RunFigures, figures_of
from tuimon.diagnosis.comparison.result import Comparison
from tuimon.errors import NotComparable
from tuimon.records import Record


class Judged(NamedTuple):
    """A pair: which, and what was said; None where it was refused."""

    name: str
    found: Comparison | None

    @property
    def outcome(self) -> str:
        """In a word."""
        return self.found.outcome if self.found is not None else "refused"

    @property
    def is_disturbed(self) -> bool:
        """Whether something was said to disturb either run."""
        notes = self.found.notes if self.found is not None else ()
        return any("Other programs" in note or "Steps of" in note for note in notes)

    @property
    def width(self) -> float:
        """Of its interval, as a ratio."""
        return self.found.speedup.high / self.found.speedup.low - 1 if self.found is not None else 0.0


def figures(records: Iterable[Record], name: str) -> RunFigures:
    """A run as it is compared, without its findings, which take most of the time and no part in the outcome."""
    session = session_of(*records)
    return figures_of(session, (), name)


def judge(before: RunFigures, after: RunFigures) -> Judged:
    """Compare two runs."""
    name = f"{before.name} | {after.name}"
    try:
        return Judged(name, compare([before], [after]))
    except NotComparable:
        return Judged(name, None)


def line(title: str, judged: Sequence[Judged]) -> str:
    """A row of the table."""
    counts = [sum(each.outcome == outcome for each in judged) for outcome in OUTCOMES]
    widths = sorted(each.width for each in judged if each.found is not None)
    median = f"{100 * widths[len(widths) // 2]:8.1f} %" if widths else ""
    disturbed = sum(each.is_disturbed for each in judged)
    return f"{title:<34}{len(judged):>6}" + "".join(f"{count:>9}" for count in counts) + f"{disturbed:>11}{median:>11}"


OUTCOMES = ("slower", "faster", "same", "unclear", "refused")
HEAD = f"{'':<34}{'pairs':>6}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES) + f"{'disturbed':>11}{'interval':>11}"
