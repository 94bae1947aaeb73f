"""Looking at a process that already runs: may we watch it, is it Python, what does its ring say."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import Any, NamedTuple

from tuimon.agent.ring import paths
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.errors import NoSuchProcess, NotPython, NotYours
from tuimon.launch.child import Ended
from tuimon.proc import pythons


@dataclass(frozen=True, slots=True)
class Attached:
    """A process that tuimon watches but did not start; its start tells it from a later one of that pid."""

    pid: int
    start_ticks: int
    command: list[str]
    run_id: str | None = None
    output: str | None = None

    def poll(self) -> Ended | None:
        """Whether it ended; None while it lives. Its exit code is its parent's to know."""
        try:
            same = paths.start_ticks(self.pid) == self.start_ticks and _state(self.pid) not in ("Z", "X")
        except (OSError, IndexError, ValueError):
            same = False
        return None if same else Ended(None, None)


class Candidate(NamedTuple):
    """A process that one may want to attach to."""

    pid: int
    start_ticks: int
    command: list[str]
    meta: dict[str, Any]  # what its ring says: JSON from the target, checked where it is used; empty: no ring

    @property
    def markers(self) -> bool:
        """Whether it has a live ring."""
        return bool(self.meta)


def look_at(pid: int) -> Attached:
    """Check that ``pid`` can be watched. Raises NoSuchProcess, NotYours or NotPython."""
    try:
        ticks = paths.start_ticks(pid)
        owner = os.stat(f"/proc/{pid}").st_uid
        ended = _state(pid) in ("Z", "X")
    except (OSError, IndexError, ValueError):
        ended = True
    if ended:
        raise NoSuchProcess(f"there is no process {pid}", "List the trainings that run: tuimon ps")
    if owner != os.getuid() and os.getuid() != 0:
        raise NotYours(
            f"process {pid} belongs to {_user(owner)}",
            f"Only its owner or root can watch it: sudo -u {_user(owner)} tuimon attach {pid}",
        )
    meta = ring_meta(pid, ticks)
    command = command_of(pid)
    if not meta:
        meta = _environment_of(pid)  # a shell that tuimon launched, or a Python that has not come to its torch yet
    if not meta and not is_python(pid):
        program = os.path.basename(command[0]) if command else "a kernel thread"
        raise NotPython(f"process {pid} ({program}) is no Python interpreter", "List the trainings that run: tuimon ps")
    return Attached(pid, ticks, command, run_id=_text(meta.get("run")), output=_text(meta.get("output")))


def ring_meta(pid: int, ticks: int) -> dict[str, Any]:
    """What the ring of a live process says of it; empty without one."""
    try:
        reader = RingReader(paths.ring_path(pid))
    except (OSError, RingError, ValueError):
        return {}
    if reader.start_ticks != ticks:
        reader.close()
        return {}
    try:
        return reader.meta() or {"pid": pid}
    finally:
        reader.close()


def ring_directory() -> str:
    """Where rings are made on this machine."""
    return paths.ring_directory()


def is_python(pid: int) -> bool:
    """Whether a process is a Python interpreter, or has one inside; True when that cannot be known."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        return True
    except OSError:
        return False
    return pythons.is_python(pid)


def has_torch(pid: int) -> bool:
    """Whether a process has torch's libraries loaded; False when that cannot be known."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            return b"/libtorch" in maps.read()
    except OSError:
        return False


def candidates() -> list[Candidate]:
    """This user's processes that have torch loaded or a live ring, oldest first."""
    found = []
    own = os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == own:
            continue
        pid = int(entry)
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.getuid():
                continue
            ticks = paths.start_ticks(pid)
        except (OSError, IndexError, ValueError):
            continue
        meta = ring_meta(pid, ticks)
        if meta or has_torch(pid):
            found.append(Candidate(pid, ticks, command_of(pid), meta))
    found.sort(key=lambda candidate: (candidate.start_ticks, candidate.pid))
    commands = {candidate.pid: candidate.command for candidate in found}
    return [candidate for candidate in found if not _is_worker(candidate, commands)]


def _is_worker(candidate: Candidate, commands: dict[int, list[str]]) -> bool:
    """Whether it is a DataLoader worker or the like: forked from a candidate, or spawned by its multiprocessing."""
    try:
        parent = parent_of(candidate.pid)
    except (OSError, IndexError, ValueError):
        return True  # gone
    spawned = any("multiprocessing" in word for word in candidate.command)
    return parent in commands and (spawned or commands[parent] == candidate.command)


def members(run_id: str) -> list[int]:
    """The live processes of a run, by what it left in their environment."""
    needle = f"TUIMON_RUN={run_id}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ:
                if needle in environ.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            continue
    return sorted(found)


def _environment_of(pid: int) -> dict[str, Any]:
    """Run and output file, as ``tuimon run`` left them in the environment of what it started."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            pairs = [entry.partition(b"=") for entry in environ.read().split(b"\0")]
    except OSError:
        return {}
    found = {name: os.fsdecode(value) for name, _, value in pairs if name in (b"TUIMON_RUN", b"TUIMON_OUTPUT")}
    run = found.get(b"TUIMON_RUN")
    return {"run": run, "output": found.get(b"TUIMON_OUTPUT")} if run else {}


def command_of(pid: int) -> list[str]:
    """The command line of a process; empty for a zombie or a kernel thread."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            raw = file.read()
    except OSError:
        return []
    return [part.decode("utf-8", "replace") for part in raw.rstrip(b"\0").split(b"\0")] if raw else []


def parent_of(pid: int) -> int:
    """Parent of a process. Raises OSError when there is none of this pid."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[1])


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()[0].decode()


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
