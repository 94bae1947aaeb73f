"""The findings of a run, from moment to moment and on the whole."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.hysteresis import Change, Hysteresis, SettledGains
from tuimon.diagnosis.judging import diagnose, diagnose_run, diagnose_state
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.session.ranks import ranks_end
from tuimon.session.session import Session
from tuimon.session.state import stands_still

#: A state that held for less than this share of the judged time has passed, and is not a property of the run: our
#: choice; one shorter than a tenth is better read from the changes. A state at the end is always reported.
PASSING_RATIO = 0.1


class _Held(Struct):
    """How long a state has held, and its latest finding."""

    total_s: float
    latest: Finding


class Verdicts:
    """Judges a run from moment to moment, and at its end all of it.

    A finding about steps is judged again over the whole steady part of the run, so that it, its evidence and the
    phases are of the same steps. Rules about the state at a moment (a hang, full memory) have no such sum: they count
    by how long they held.
    """

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._judged_s = 0.0  # without warm-up
        self._last: list[Finding] = []
        self._shown: list[Finding] = []
        self._hysteresis = Hysteresis()
        self._gains = SettledGains()

    @property
    def changes(self) -> Sequence[Change]:
        """When the primary verdict changed, oldest first."""
        return self._hysteresis.changes

    def judge_moment(self, session: Session, lasting_s: float) -> list[Finding]:
        """The findings of this moment without flicker; they stand for the ``lasting_s`` seconds since the last call.

        While the loop stands still its steps are not judged. A pause changes no verdict, unless it is a hang, and
        neither does the end of ranks, one after another.
        """
        pid = session.trainer()
        stats = session.step_stats.get(pid) if pid is not None else None
        is_still = stands_still(session)
        if not is_still and ranks_end(session):
            return self._shown
        found = self._gains.settle(diagnose_state(session) if is_still else diagnose(session), session.now_s)
        if lasting_s > 0:
            self.add_findings(found, lasting_s)
        if is_still and not any(finding.rule == "hang" for finding in found):
            return found
        self._shown = self._hysteresis.order(found, session.now_s, stats.total if stats else None)
        return self._shown

    def add_findings(self, findings: Sequence[Finding], lasting_s: float) -> None:
        """Add the findings of one moment, which stands for ``lasting_s`` seconds."""
        self._last = list(findings)
        if not any(finding.rule == "warmup" for finding in findings):
            self._judged_s += lasting_s
        for finding in findings:
            if BY_NAME[finding.rule].of_moment:
                held = self._held.setdefault(finding.rule, _Held(0.0, finding))
                held.total_s += lasting_s
                held.latest = finding

    def judge_run(self, session: Session) -> list[Finding]:
        """The findings on the whole run; as long as it goes on and has not got further, warm-up is the verdict."""
        findings = diagnose_run(session, self.lasting_states())
        if findings or session.exit is not None:
            return findings
        return [finding for finding in self._last if finding.rule == "warmup"]

    def lasting_states(self) -> list[Finding]:
        """The findings about states that held for long enough, or hold at the end."""
        at_end = {finding.rule for finding in self._last}
        return [
            held.latest
            for rule, held in self._held.items()
            if rule in at_end or held.total_s >= PASSING_RATIO * self._judged_s
        ]
