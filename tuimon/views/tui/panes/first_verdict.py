"""The first verdict waits until it has held: what comes in a run's first seconds often gives way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

#: Seconds that the first verdict must hold: our choice, two windows of stack samples; small batches, which need none,
#: came first in half of the short runs and gave way within that time.
HOLD_S = 5.0
#: ... and that nothing is found: the rules that need most wait for GPU events and samples of some windows.
NOTHING_S = 10.0
#: Seconds of steps from which nothing waits: all evidence is of whole windows by then.
SETTLED_S = 30.0
#: These say what is at this moment, and wait for nothing.
_AT_ONCE = ("hang", "warmup")


class FirstVerdict:
    """True if a verdict has held yet; once one has, changes are the hysteresis' business."""

    def __init__(self) -> None:
        self._is_settled = False
        self._name: str | None = ""  # none yet
        self._since_s = 0.0

    def measuring_s(self, session: Session, findings: Sequence[Finding]) -> int | None:
        """For how many seconds the steps have been measured without a verdict that has held; None once one has."""
        now_s, begin_s = session.now_s, _begin_s(session)
        if self._is_settled or session.exit is not None or any(each.rule in _AT_ONCE for each in findings[:1]):
            return None
        name = f"{findings[0].rule}/{findings[0].cause}" if findings else None
        if name != self._name:
            self._name, self._since_s = name, now_s
        if findings:
            self._is_settled = now_s - self._since_s >= HOLD_S
        else:
            self._is_settled = now_s - begin_s >= NOTHING_S
        self._is_settled = self._is_settled or now_s - begin_s >= SETTLED_S
        return None if self._is_settled else int(now_s - begin_s)


def _begin_s(session: Session) -> float:
    """When the steps began; without markers, when tuimon began to watch."""
    pid = session.trainer()
    stats = session.step_stats.get(pid) if pid is not None else None
    if stats is not None and stats.begin_s is not None:
        return stats.begin_s
    return session.start_s if session.start_s is not None else session.now_s
