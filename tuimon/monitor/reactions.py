"""``--on-hang`` and ``--on-finding``: runs the user's commands when a finding appears, each once."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.finding_json import finding_json
from tuimon.diagnosis.hysteresis import HOLD_S, name_of
from tuimon.monitor.detached import Detached, Outcome
from tuimon.records import Notice
from tuimon.session.session import Session
from tuimon.session.standing.standing import standing
from tuimon.session.standing.text import group_json

#: Commands that run at a time; one more is left out, which is a notice.
_AT_ONCE = 4
#: A hang is reported with all stacks, or after so long without them (s).
_STACKS_S = 10.0
#: Groups of stacks that a command is given.
_GROUPS = 16
#: How long the end of commands is waited for when tuimon ends (s): then they go on alone.
_LAST_S = 0.5


class Reaction(NamedTuple):
    """A command, and what it is run for: a rule, a cause or a severity."""

    name: str
    command: str


class _Seen:
    """A finding that is there now, or was."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.is_reported = False
        self.steps = 0  # of the run when it was reported
        self.before_stacks: Finding | None = None  # as it was when the stacks were there first


class Reactions:
    """An Observer of the findings of every moment. Nothing here waits: commands run on threads of their own."""

    name = "command"

    def __init__(self, reactions: Sequence[Reaction], inherit: bool) -> None:
        """``inherit``: what commands print goes to our stderr, else into notices."""
        self.reactions = tuple(reactions)
        self._inherit = inherit
        self._seen: dict[str, _Seen] = {}
        self._running: list[Detached] = []
        self._left_out: list[str] = []

    def start(self) -> None:
        """Do nothing: no command runs before there is a finding."""

    def show(self, session: Session, findings: Sequence[Finding]) -> Sequence[Notice]:
        """Run what is due for these findings; how commands have ended since the last call."""
        self._see(session, findings)
        return self._notices(session.now_s)

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """Wait a moment for commands that are about to end; the others go on alone."""
        for each in self._running:
            each.join(_LAST_S / len(self._running))

    def _see(self, session: Session, findings: Sequence[Finding]) -> None:
        now_s = session.now_s
        names = {name_of(finding) or "": finding for finding in findings}
        steps = _steps(session)
        for name, seen in list(self._seen.items()):
            # a hang is another one when steps went on; any other finding is reported once a run
            if name not in names and (not seen.is_reported or (name == "hang" and steps > seen.steps)):
                del self._seen[name]
        for name, finding in names.items():
            seen = self._seen.setdefault(name, _Seen(now_s))
            if not seen.is_reported and _is_due(finding, seen, session, now_s - seen.since_s):
                seen.is_reported, seen.steps = True, steps
                self._react(finding, session)

    def _notices(self, now_s: float) -> list[Notice]:
        ended = [each for each in self._running if each.outcome is not None]
        self._running = [each for each in self._running if each not in ended]
        found = [_notice(each.outcome, now_s) for each in ended if each.outcome is not None]
        left_out, self._left_out = self._left_out, []
        return found + [
            Notice(t=now_s, pid=0, source="command", level="warning", message=f"{text} was not run: others still run")
            for text in left_out
        ]

    def _react(self, finding: Finding, session: Session) -> None:
        payload = json.dumps(_payload(finding, session)).encode()
        for name, command in self.reactions:
            if name not in (finding.rule, finding.cause, finding.severity):
                continue
            if len(self._running) >= _AT_ONCE:
                self._left_out.append(command)
            else:
                self._running.append(Detached(shlex.split(command), payload, self._inherit))


def _is_due(finding: Finding, seen: _Seen, session: Session, held_s: float) -> bool:
    """True if a finding has held; a hang that it was judged with all stacks, which may have come after it."""
    if finding.rule != "hang":
        return held_s >= HOLD_S
    if held_s >= _STACKS_S or _stacks(session) is None:
        return held_s >= _STACKS_S
    seen.before_stacks = seen.before_stacks or finding
    return finding is not seen.before_stacks


def _payload(finding: Finding, session: Session) -> dict[str, Any]:  # Any: JSON
    """The finding as in a report; of a hang with the stacks; and whose it is."""
    header, stacks = session.header, _stacks(session) if finding.rule == "hang" else None
    return {
        **finding_json(finding),
        "stacks": stacks,
        "run": {
            "host": header.host if header else None,
            "pid": header.pid if header else None,
            "command": header.command if header else [],
            "unix_s": round(header.wall_unix_s + session.now_s - header.t, 3) if header else None,
            "steps": _steps(session),
        },
    }


def _stacks(session: Session) -> list[dict[str, Any]] | None:  # Any: JSON
    past = next(reversed(session.standstills.past), None)
    if past is None or past.ended_s is not None:
        return None
    return [group_json(group) for group in standing(past.taken)[:_GROUPS]]


def _steps(session: Session) -> int:
    stats = (session.step_stats.get(pid) for pid in session.trainers())
    return max((each.total for each in stats if each is not None), default=0)


def _notice(outcome: Outcome, now_s: float) -> Notice:
    ok = outcome.exit_code == 0
    how = "has ended" if ok else outcome.trouble or f"ended with code {outcome.exit_code}"
    left = f"; processes that it has started go on by themselves: {outcome.left}" if outcome.left else ""
    printed = f": {outcome.output.strip()}" if outcome.output.strip() else ""
    message = f"{shlex.join(outcome.words)} {how}{left}{printed}"
    return Notice(t=now_s, pid=0, source="command", level="ok" if ok else "warning", message=message)
