"""The baseline: what was on the screen at one moment, and the line below the verdict that compares with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.errors import NotComparable
from tuimon.session.windows import WINDOW_S
from tuimon.views.format import ABSENT, count, ms, plain
from tuimon.views.tui.drawing.lines import Line, Span, cells, clipped, justified, line
from tuimon.views.tui.drawing.pane import Pane

if TYPE_CHECKING:
    from tuimon.diagnosis.comparison.figures import RunFigures
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

#: A change below this is no news: our choice, what the colours of a phase's change ask for.
_NEWS = 0.05
#: Seconds of the run between two comparisons: each takes about 25 ms of a core, so half a percent of it.
_EVERY_S = 5.0
#: It compares whole runs instead of 30 s of each: who watches a run does not repeat it.
_MORE = "try tuimon diff"
_ROLES = {"faster": "benign", "slower": "critical", "same": "text", "unclear": "dim"}


class Baseline(NamedTuple):
    """The figures of 30 s, and what the panes show of them."""

    figures: RunFigures
    taken_s: float  # on the clock of its records
    pid: int
    step: int  # how many steps had been made
    step_ms: float | None  # median
    phases_ms: Mapping[str, float]


def take_baseline(session: Session, findings: Sequence[Finding]) -> Baseline | None:
    """The figures on the screen now; None before a step has been measured."""
    from tuimon.diagnosis.comparison.figures import recent_figures

    pid = session.trainer()
    figures = recent_figures(session, findings)
    now = session.over("recent")
    table, steps = (now.phases(pid), now.steps(pid)) if pid is not None else (None, None)
    if pid is None or figures is None or table is None or steps is None:
        return None
    phases_ms = {row.name: row.ms_per_step for row in table.rows if row.ms_per_step is not None}
    return Baseline(figures, session.now_s, pid, steps.total, steps.median_ms, phases_ms)


def is_past(taken: Baseline, session: Session) -> bool:
    """True if what the screen shows, of the last 30 s, has come after the baseline."""
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


class Compared(NamedTuple):
    """The state of the line."""

    text: str
    role: str
    before_ms: float | None
    now_ms: float | None
    is_sure: bool = True  # else it is too early to say


class BaselineLine(Pane[Compared | None], can_focus=False):
    """One line."""

    taken: Baseline | None = None
    _next_s = -math.inf  # when to compare again, on the clock of the records
    _said = ("", "dim")

    def take(self, baseline: Baseline | None) -> None:
        """Compare with this from now on."""
        self.taken, self._next_s = baseline, -math.inf

    def collect(self, session: Session, findings: Sequence[Finding]) -> Compared | None:
        """The sentence, renewed every 5 s, and the step times of this moment."""
        taken, pid = self.taken, session.trainer()
        if taken is None:
            return None
        if not self._next_s - _EVERY_S <= session.now_s < self._next_s:  # a clock that begins anew is another run's
            self._said, self._next_s = _compare(taken, session, findings), session.now_s + _EVERY_S
        steps = session.over("recent").steps(pid) if pid is not None else None
        now_ms = steps.median_ms if steps is not None else None
        return Compared(*self._said, taken.step_ms, now_ms, is_past(taken, session))

    def draw(self, state: Compared | None, width: int, height: int) -> list[Line]:
        """The line."""
        return [baseline_line(state, width)] if state is not None else []


def baseline_line(state: Compared, width: int) -> Line:
    """A badge, the sentence with its interval, and at the right the step then and now, once enough has come since."""
    badge = Span(" BASELINE ", f"{state.role if state.role != 'text' else 'dim'} badge")
    right = line((f"step {ms(state.before_ms)} → {ms(state.now_ms)} ", "text"))
    room = width - cells((badge,)) - 2
    if state.is_sure and len(state.text) + cells(right) + 2 <= room:
        return justified(line(" ", badge, " ", (state.text, state.role)), right, width)
    return line(" ", badge, " ", (clipped(state.text, room), state.role))


def _compare(taken: Baseline, session: Session, findings: Sequence[Finding]) -> tuple[str, str]:
    """Figures since the baseline, of the same process; of another one, all that the screen shows."""
    from tuimon.diagnosis.comparison.compare import compare
    from tuimon.diagnosis.comparison.figures import recent_figures
    from tuimon.diagnosis.comparison.side import LEAST_BATCHES
    from tuimon.diagnosis.comparison.words import REPEAT

    since_s = taken.taken_s if session.trainer() == taken.pid else -math.inf
    recent = recent_figures(session, findings, since_s)
    if recent is None or len(recent.stretches) < LEAST_BATCHES:
        return f"taken at step {count(taken.step)}; too early to say what has changed since", "dim"
    try:
        found = compare([taken.figures], [recent])
    except NotComparable as error:
        return plain(error.message), "warning"
    headline = (found.headline[:1].upper() + found.headline[1:]).replace(REPEAT, _MORE)
    return plain(headline), _ROLES[found.outcome]
