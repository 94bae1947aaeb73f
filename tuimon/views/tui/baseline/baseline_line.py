"""The line below the verdict: did it help? The comparison with the baseline, in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.errors import NotComparable
from tuimon.views.format import count, ms, plain
from tuimon.views.tui.baseline.baseline import Baseline, is_past
from tuimon.views.tui.drawing.lines import Line, Span, cells, clipped, justified, line
from tuimon.views.tui.drawing.pane import Pane

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

#: Seconds of the run between two comparisons: each takes about 25 ms of a core, so half a percent of it.
_EVERY_S = 5.0
_ROLES = {"faster": "benign", "slower": "critical", "same": "text", "unclear": "dim"}


class Compared(NamedTuple):
    """What the line shows."""

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
        steps = session.steps(pid) if pid is not None else None
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
    """What has come since, of the same process; all that the screen shows, of another."""
    from tuimon.diagnosis.comparison.compare import compare
    from tuimon.diagnosis.comparison.figures import recent_figures
    from tuimon.diagnosis.comparison.side import LEAST_BATCHES

    since_s = taken.taken_s if session.trainer() == taken.pid else -math.inf
    recent = recent_figures(session, findings, since_s)
    if recent is None or len(recent.stretches) < LEAST_BATCHES:
        return f"taken at step {count(taken.step)}; too early to say what has changed since", "dim"
    try:
        found = compare([taken.figures], [recent])
    except NotComparable as error:
        return plain(error.message), "warning"
    headline = found.headline[:1].upper() + found.headline[1:]
    return plain(headline), _ROLES[found.outcome]
