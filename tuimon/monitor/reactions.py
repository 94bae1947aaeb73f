"""``--on-hang`` and ``--on-finding``: run the user's commands when a finding appears, once for each finding."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

import msgspec

from tuimon.diagnosis.finding import Finding, FindingJson
from tuimon.records import Notice
from tuimon.session.session import Session
from tuimon.session.standstills import group_json, standing_groups
from tuimon.threshold import HOLD_S

#: Longest run of a command (s): far longer than sending a message takes, and no training waits for it.
LIMIT_S = 60.0
#: Bytes of a command's output that are kept.
OUTPUT_BYTES = 2000


class CommandOutcome(NamedTuple):
    """How a command ended."""

    exit_code: int | None  # None: it could not be started, or took too long
    output: str = ""  # the start of its output; empty if that went to our own stderr
    trouble: str = ""

    def line(self, words: Sequence[str]) -> str:
        """A line on how the command with these words ended, with its output."""
        how = "has ended" if self.exit_code == 0 else self.trouble or f"ended with code {self.exit_code}"
        printed = self.output.strip()
        return f"{shlex.join(words)} {how}" + (f": {printed}" if printed else "")


class DetachedCommand:
    """Runs one command on a thread; ``outcome`` is set once the command has ended."""

    def __init__(self, words: Sequence[str], payload: bytes, inherit: bool, limit_s: float = LIMIT_S) -> None:
        """``payload``: the command's stdin; ``inherit``: whether its output goes to our stderr."""
        self.words = tuple(words)
        self.outcome: CommandOutcome | None = None
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
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: no thread for its output
            self.outcome = CommandOutcome(None, trouble=f"could not be started: {error}")

    def _ended(self) -> CommandOutcome:
        with tempfile.TemporaryFile() as stdin:  # no pipe: a command need not read it, and tuimon may end first
            stdin.write(self._payload)
            stdin.seek(0)
            # the stdout of headless tuimon belongs to the training
            out = sys.__stderr__.fileno() if self._inherit and sys.__stderr__ is not None else subprocess.PIPE
            process = subprocess.Popen(
                self.words, stdin=stdin, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        output = bytearray()
        reader = threading.Thread(target=_read, args=(process.stdout, output), name="tuimon-output", daemon=True)
        reader.start()
        exit_code: int | None = None
        trouble = ""
        try:
            exit_code = process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            trouble = f"was ended after {self._limit_s:.0f} s"
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # ends its whole session
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold it, as on a dead file server
                process.wait(5.0)
        reader.join(1.0)  # processes that it has left behind may hold the stream for longer
        return CommandOutcome(exit_code, output.decode("utf-8", "replace"), trouble)


def _read(stream: IO[bytes] | None, output: bytearray) -> None:
    """Keep the first bytes that a command prints, and read on to the end, so that it never blocks."""
    with stream or contextlib.nullcontext():
        while stream is not None and (part := os.read(stream.fileno(), 1 << 16)):
            output += part[: OUTPUT_BYTES - len(output)]


#: Most commands that run at a time; a further one is left out, with a notice.
_AT_ONCE = 4
#: A hang is reported once all stacks are there, or after this many seconds without them.
_STACKS_S = 10.0


class Reaction(NamedTuple):
    """A command, and the rule, cause or severity for which it runs."""

    name: str
    command: str


class _Seen:
    """A finding that is present, or was."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.is_reported = False
        self.steps = 0  # steps of the run when it was reported
        self.before_stacks: Finding | None = None  # the finding as it was when the stacks first arrived


class Reactions:
    """An Observer of the findings of every moment. Nothing here blocks: commands run on threads of their own."""

    name = "command"

    def __init__(self, reactions: Sequence[Reaction], inherit: bool) -> None:
        """``inherit``: whether the output of commands goes to our stderr, or else into notices."""
        self.reactions = tuple(reactions)
        self._inherit = inherit
        self._seen: dict[str, _Seen] = {}
        self.running: list[DetachedCommand] = []
        self._left_out: list[str] = []

    def show(self, session: Session, findings: Sequence[Finding]) -> Sequence[Notice]:
        """Run the commands that are due for these findings; returns how commands have ended since the last call."""
        self._see(session, findings)
        ended = [each for each in self.running if each.outcome is not None]
        self.running = [each for each in self.running if each not in ended]
        lines = [(each.outcome.exit_code == 0, each.outcome.line(each.words)) for each in ended if each.outcome]
        lines += [(False, f"{text} was not run: others still run") for text in self._left_out]
        self._left_out.clear()
        return [
            Notice(t=session.now_s, pid=0, source="command", level="ok" if is_well else "warning", message=message)
            for is_well, message in lines
        ]

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """Wait a moment for commands that are about to end; the others go on alone."""
        for each in self.running:
            each.join(0.5 / len(self.running))

    def _see(self, session: Session, findings: Sequence[Finding]) -> None:
        now_s = session.now_s
        names = {finding.name: finding for finding in findings}
        steps = _steps(session)
        for name, seen in list(self._seen.items()):
            # a hang counts as a new one if steps have gone on since; any other finding is reported once per run
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
                        self.running.append(DetachedCommand(shlex.split(command), payload, self._inherit))


def _is_due(finding: Finding, seen: _Seen, session: Session, held_s: float) -> bool:
    """True if a finding has held for long enough; a hang must also be judged with all stacks, which may come later."""
    if finding.rule != "hang":
        return held_s >= HOLD_S
    if held_s >= _STACKS_S or _stacks(session) is None:
        return held_s >= _STACKS_S
    seen.before_stacks = seen.before_stacks or finding
    return finding is not seen.before_stacks


def _payload(finding: Finding, session: Session) -> dict[str, Any]:  # Any: JSON
    """The finding as in a report, with its process; for a hang also the stacks."""
    header, stacks = session.header, _stacks(session) if finding.rule == "hang" else None
    return {
        **msgspec.to_builtins(FindingJson.of(finding)),
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
    return [group_json(group) for group in standing_groups(past.taken)[:16]]


def _steps(session: Session) -> int:
    return max((session.step_stats[pid].total for pid in session.trainers()), default=0)
