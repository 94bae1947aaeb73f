"""``--on-hang`` and ``--on-finding``: runs the user's commands beside a training when a finding appears, each once."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from tuimon.diagnosis.finding import Finding, finding_json
from tuimon.diagnosis.verdicts import HOLD_S
from tuimon.records import Notice
from tuimon.session.session import Session
from tuimon.session.standing import group_json, standing

#: How long a command may take (s): far longer than sending a message, and no training waits for it.
LIMIT_S = 60.0
#: How much of what it prints is kept, in bytes.
OUTPUT_BYTES = 2000
#: How much is read of what stands in the pipe when it has ended, in bytes: as much as a pipe can hold.
_LAST_BYTES = 1 << 20
#: How often the end of a command that prints nothing is looked for (s).
_LOOK_S = 0.1
#: How long the end of what was killed is waited for (s).
_KILLED_S = 5.0


class Outcome(NamedTuple):
    """How a command ended."""

    words: tuple[str, ...]
    exit_code: int | None  # None: it could not be started, or took too long
    output: str = ""  # its output, cut; empty if that went to our own stderr
    trouble: str = ""


class Detached:
    """Runs one command on a thread; ``outcome`` is there once it has ended."""

    def __init__(self, words: Sequence[str], payload: bytes, inherit: bool, limit_s: float = LIMIT_S) -> None:
        """``payload``: its stdin; ``inherit``: what it prints goes to our stderr."""
        self.words = tuple(words)
        self.outcome: Outcome | None = None
        self._payload = payload
        self._inherit = inherit
        self._limit_s = limit_s
        self._thread = threading.Thread(target=self._run, name="tuimon-command", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self.outcome = self._ended()
        except (OSError, ValueError) as error:
            self.outcome = Outcome(self.words, None, trouble=f"could not be started: {error}")

    def _ended(self) -> Outcome:
        with tempfile.TemporaryFile() as stdin:  # no pipe: a command need not read it, and we may end before it does
            stdin.write(self._payload)
            stdin.seek(0)
            # stdout of headless tuimon is the training's
            out = sys.__stderr__.fileno() if self._inherit and sys.__stderr__ is not None else subprocess.PIPE
            process = subprocess.Popen(
                self.words,
                stdin=stdin,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until_s = time.monotonic() + self._limit_s
        output = _first_bytes(process, process.stdout, until_s) if process.stdout is not None else ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(until_s - time.monotonic(), 0.0))
            return Outcome(self.words, process.returncode, output)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # its session
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold it, as on a dead file server
            process.wait(_KILLED_S)
        return Outcome(self.words, None, output, f"was ended after {self._limit_s:.0f} s")


def _first_bytes(process: subprocess.Popen[bytes], stream: IO[bytes], until_s: float) -> str:
    """The first bytes that it prints until its end; the rest is read and dropped, so that nobody blocks.

    Processes that it has started may hold the stream open for longer; nobody waits for them.
    """
    kept, more = b"", _LAST_BYTES
    with stream, select.epoll() as readable:
        readable.register(stream, select.EPOLLIN)
        while more > 0:
            over = process.poll() is not None or time.monotonic() >= until_s  # earlier output is read
            if readable.poll(0.0 if over else _LOOK_S):
                part = os.read(stream.fileno(), 1 << 16)
                if not part:
                    break
                kept += part[: OUTPUT_BYTES - len(kept)]
                more -= len(part) if over else 0
            elif over:
                break
    return kept.decode("utf-8", "replace")


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
        self.running: list[Detached] = []
        self._left_out: list[str] = []

    def start(self) -> None:
        """Do nothing: no command runs before there is a finding."""

    def show(self, session: Session, findings: Sequence[Finding]) -> Sequence[Notice]:
        """Run what is due for these findings; how commands have ended since the last call."""
        self._see(session, findings)
        ended = [each for each in self.running if each.outcome is not None]
        self.running = [each for each in self.running if each not in ended]
        found = [_notice(each.outcome, session.now_s) for each in ended if each.outcome is not None]
        left_out, self._left_out = self._left_out, []
        return found + [
            Notice(
                t=session.now_s,
                pid=0,
                source="command",
                level="warning",
                message=f"{text} was not run: others still run",
            )
            for text in left_out
        ]

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """Wait a moment for commands that are about to end; the others go on alone."""
        for each in self.running:
            each.join(_LAST_S / len(self.running))

    def _see(self, session: Session, findings: Sequence[Finding]) -> None:
        now_s = session.now_s
        names = {finding.name: finding for finding in findings}
        steps = _steps(session)
        for name, seen in list(self._seen.items()):
            # a hang is another one when steps went on; any other finding is reported once a run
            if name not in names and (not seen.is_reported or (name == "hang" and steps > seen.steps)):
                del self._seen[name]
        for name, finding in names.items():
            seen = self._seen.setdefault(name, _Seen(now_s))
            if not seen.is_reported and _is_due(finding, seen, session, now_s - seen.since_s):
                seen.is_reported, seen.steps = True, steps
                payload = json.dumps(_payload(finding, session)).encode()
                for wanted, command in self.reactions:
                    if wanted not in (finding.rule, finding.cause, finding.severity):
                        continue
                    if len(self.running) >= _AT_ONCE:
                        self._left_out.append(command)
                    else:
                        self.running.append(Detached(shlex.split(command), payload, self._inherit))


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
    printed = f": {outcome.output.strip()}" if outcome.output.strip() else ""
    message = f"{shlex.join(outcome.words)} {how}{printed}"
    return Notice(t=now_s, pid=0, source="command", level="ok" if ok else "warning", message=message)
