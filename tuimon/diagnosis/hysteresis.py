"""Hysteresis: keeps the primary verdict from flickering, and records when it changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.rank import SEVERITY

#: Seconds that a new primary finding must hold: our choice, three windows; a shorter one would follow single windows.
HOLD_S = 3.0
#: ... unless it is graver and takes this much more of the step: our choice; what clearly costs more shows at once.
STRONGER_RATIO = 1.5
_CHANGES_LIMIT = 100


class Change(NamedTuple):
    """The primary verdict changed: before and after are ``rule`` or ``rule/cause``, None for no finding."""

    t_s: float
    step: int | None  # steps ended by then
    before: str | None
    after: str | None

    def text(self) -> str:
        """``at step 1,200: input_bound -> compute_bound_cpu``."""
        when = f"at step {self.step:,}: " if self.step is not None else ""
        return f"{when}{self.before or 'nothing'} -> {self.after or 'nothing'}"


class Hysteresis:
    """Orders the findings of each moment so that a brief one does not take the first place.

    One moment a second, B no graver than A::

        found   A  B  A  A  B  B  B  B
        shown   A  A  A  A  A  A  A  B     B has held for HOLD_S
    """

    def __init__(self) -> None:
        self.changes: deque[Change] = deque(maxlen=_CHANGES_LIMIT)
        self._primary: Finding | None = None
        self._gone_s: float | None = None  # since when the primary is not among the findings
        self._challenger: str | None = None
        self._challenged_s = 0.0  # since when the challenger has held
        self._begun = False  # a verdict was given after the warm-up

    def order(self, findings: Sequence[Finding], now_s: float, step: int | None) -> list[Finding]:
        """The findings, with the primary that has held first.

        A primary that is no longer found stays for ``HOLD_S`` at most, even if others take turns meanwhile.
        """
        first = findings[0] if findings else None
        found = next((f for f in findings if name_of(f) == name_of(self._primary)), None)
        if found is not None:
            self._gone_s = None
        elif self._gone_s is None:
            self._gone_s = now_s
        if name_of(first) == name_of(self._primary):
            self._primary, self._challenger = first, None
            return list(findings)
        if self._challenger != (name_of(first) or ""):
            self._challenger, self._challenged_s = name_of(first) or "", now_s
        since_s = self._challenged_s if self._gone_s is None else min(self._challenged_s, self._gone_s)
        if self._yields_to(first) or now_s - since_s >= HOLD_S:
            self._change(first, now_s, step)
            return list(findings)
        kept = found if found is not None else self._primary
        rest = [f for f in findings if kept is None or f.rule != kept.rule]
        return [kept, *rest] if kept is not None else []

    def _yields_to(self, first: Finding | None) -> bool:
        """True if ``first`` replaces the primary verdict at once, without holding for ``HOLD_S``.

        It does if there is no primary yet, or only warm-up; if it is a hang or warm-up; if it adds a cause to the same
        rule; or if it is graver and takes ``STRONGER_RATIO`` times as much of the step.
        """
        old = self._primary
        if old is None or old.rule == "warmup":
            return True
        if first is None:
            return False
        if first.rule in ("warmup", "hang") or (first.rule == old.rule and old.cause is None):
            return True
        graver = SEVERITY[first.severity] < SEVERITY[old.severity]
        return graver and (first.share_of_step or 0.0) > STRONGER_RATIO * (old.share_of_step or 0.0)

    def _change(self, first: Finding | None, now_s: float, step: int | None) -> None:
        before, after = self._primary, first
        self._primary, self._challenger, self._gone_s = first, None, None
        if any(f is not None and f.rule == "warmup" for f in (before, after)):
            return
        if before is not None and after is not None and before.rule == after.rule and before.cause is None:
            return
        if self._begun or before is not None:
            self.changes.append(Change(now_s, step, name_of(before), name_of(after)))
        self._begun = True


def name_of(finding: Finding | None) -> str | None:
    """``rule/cause``, or ``rule`` where there is no cause."""
    if finding is None:
        return None
    return f"{finding.rule}/{finding.cause}" if finding.cause else finding.rule
