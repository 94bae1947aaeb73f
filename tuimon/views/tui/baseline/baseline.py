"""What was on the screen at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.session.windows import WINDOW_S
from tuimon.views.format import ABSENT

if TYPE_CHECKING:
    from tuimon.diagnosis.comparison.figures import RunFigures
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

#: A change below this is no news: our choice, what the colours of a phase's change ask for.
_NEWS = 0.05


class Baseline(NamedTuple):
    """The figures of 30 s, and what the panes show of them."""

    figures: RunFigures
    taken_s: float  # on the clock of its records
    pid: int
    step: int  # how many steps had been made
    step_ms: float | None  # median
    phases_ms: Mapping[str, float]


def take_baseline(session: Session, findings: Sequence[Finding]) -> Baseline | None:
    """What the screen shows now; None before a step has been measured."""
    from tuimon.diagnosis.comparison.figures import recent_figures

    pid = session.trainer()
    figures = recent_figures(session, findings)
    table, steps = (session.phases(pid), session.steps(pid)) if pid is not None else (None, None)
    if pid is None or figures is None or table is None or steps is None:
        return None
    phases_ms = {row.name: row.ms_per_step for row in table.rows if row.ms_per_step is not None}
    return Baseline(figures, session.now_s, pid, steps.total, steps.median_ms, phases_ms)


def is_past(taken: Baseline, session: Session) -> bool:
    """Whether what the screen shows, of the last 30 s, has come after the baseline."""
    return session.trainer() != taken.pid or not 0 <= session.now_s - taken.taken_s < WINDOW_S


def shortness(taken: Baseline) -> str | None:
    """Why a baseline can be compared with nothing yet, and what to do; None where it can."""
    from tuimon.diagnosis.comparison.side import LEAST_BATCHES, judged

    run = judged(taken.figures)
    if run.is_long_enough:
        return None
    windows = len(run.steady.rows)
    has = f"{windows} window{'' if windows == 1 else 's'} with steps after the warm-up"
    return f"the baseline has {has}, too few to compare with: press b again when it has {LEAST_BATCHES} or more"


def change_text(before: float | None, now: float | None) -> tuple[str, str]:
    """``-62 %`` and its role; ``new`` where there was nothing, a dash where either is unknown."""
    if now is None or before is None:
        return (ABSENT, "dim") if now is None or now <= 0 else ("new", "dim")
    if before <= 0:
        return ("new", "dim") if now > 0 else ("", "dim")
    change = now / before - 1
    role = "dim" if abs(change) < _NEWS else "benign" if change < 0 else "critical"
    if change >= 9.995:
        return f"{now / before:.0f}x", role
    return f"{100 * change:+.0f} %" if abs(change) >= 0.005 else "0 %", role
