"""The history: one line for each run of a command on this machine, from which later ones know how fast it was.

A line holds the hash of the command and its folder, the script's name and figures; nothing of the code.
"""

from __future__ import annotations

import contextlib
import os
from _blake2 import blake2b  # hashlib loads OpenSSL, 4 MB
from collections.abc import Sequence

import msgspec

from tuimon.diagnosis.finding import Finding
from tuimon.launch.places import lasting_folder
from tuimon.monitor.options import Options
from tuimon.new_files import PRIVATE_MODE, create_private
from tuimon.records import EarlierRun, EarlierRuns, Header, Notice
from tuimon.session.session import Session

#: Set to 0, nothing is read or kept.
VARIABLE = "TUIMON_HISTORY"
#: Runs of one command that a run is compared with, the latest: our choice, as older ones are of older code.
_COMPARED = 5
#: Lines of the file, and how many are left of it when it has more; a line has 300 bytes.
_MOST_LINES, _KEPT_LINES = 2000, 1000


class _Line(msgspec.Struct, frozen=True):
    command: str  # hash of it and its folder
    script: str
    host: str
    run: EarlierRun


class History:
    """Reads the earlier runs of a command, and adds this one at its end: an observer of the run."""

    name = "history"

    def __init__(self, path: str, header: Header, folder: str) -> None:
        self._path = path
        self._header = header
        self._key = blake2b(msgspec.json.encode([folder, header.command]), digest_size=16).hexdigest()

    def earlier(self) -> list[EarlierRuns]:
        """The earlier runs of the same command on this host, in a record; none without any."""
        found = [line.run for line in _lines(self._path) if self._is_same(line)]
        return [EarlierRuns(t=self._header.t, pid=self._header.pid, runs=found[-_COMPARED:])] if found else []

    def _is_same(self, line: _Line) -> bool:
        return (line.command, line.host) == (self._key, self._header.host)

    def start(self) -> None:
        """Do nothing: the run has yet to make steps."""

    def show(self, session: Session, findings: Sequence[Finding]) -> Sequence[Notice]:
        """Do nothing: the run goes on."""
        return ()

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """Add the run, if it made enough steps and others did not hold it up."""
        run = run_of(session)
        if run is None:
            return
        script = next((word for word in self._header.command if word.endswith(".py")), self._header.command[0])
        line = _Line(self._key, os.path.basename(script), self._header.host, run)
        with contextlib.suppress(OSError):  # a full disk, a folder of somebody else: the next run knows less
            add_line(self._path, msgspec.json.encode(line))


def history_of(header: Header, options: Options) -> History | None:
    """The history of a run that starts here; None where it is switched off, or the folder cannot be used."""
    is_first = not header.node and os.environ.get("RANK", "0") == "0"
    if not options.history or os.environ.get(VARIABLE) == "0" or not header.command or not is_first:
        return None
    folder = lasting_folder()
    with contextlib.suppress(OSError):  # the folder that it starts in may be gone
        return History(os.path.join(folder, "history.jsonl"), header, os.getcwd()) if folder is not None else None
    return None


def run_of(session: Session) -> EarlierRun | None:
    """What the next run is told of this one; None where its steps say nothing."""
    from tuimon.diagnosis.evidence.evidence import evidence_of

    pid, header = session.trainer(), session.header
    evidence = evidence_of(session.over("whole"), pid) if pid is not None else None
    if evidence is None or header is None or evidence.level is None:
        return None
    level, setting = evidence.level, evidence.setting
    return EarlierRun(
        header.wall_unix_s,
        level.steps,
        round(level.step_ms, 4),
        [round(ms, 4) for ms in level.phases_ms],
        setting.cpu_count,
        list(setting.gpus),
        setting.ranks,
        setting.batch_size,
    )


def _lines(path: str) -> list[_Line]:
    """The lines of the file; those that are damaged, or of another version, are left out."""
    found = []
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for text in file:
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(text, type=_Line))
    return found


def add_line(path: str, line: bytes) -> None:
    """Append a line, and drop the oldest of too many; what another monitor adds just then may go. Raises OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, PRIVATE_MODE), "r+b") as file:
        text = file.read()
        file.write((b"" if text.endswith(b"\n") or not text else b"\n") + line + b"\n")
    lines = text.splitlines()
    if len(lines) >= _MOST_LINES:
        made = f"{path}.{os.getpid()}"
        with open(create_private(made), "wb") as file:
            file.write(b"\n".join([*lines[1 - _KEPT_LINES :], line]) + b"\n")
        os.replace(made, path)
