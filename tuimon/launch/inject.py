"""Brings the agent into a Python process that runs already: by ``sys.remote_exec`` from Python 3.14 on, by gdb before.

1. ``target`` examines the process, without touching it, and refuses with cause and next step.
2. This module makes a private folder with the script that the process is to run (``tuimon/agent/boot.py``).
3. ``sys.remote_exec``, called here, or ``gdb`` has the process run the script as soon as its interpreter allows.
4. The script leaves its answer in the folder. Once the folder is gone, the script does nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from tuimon.agent import AGENT_FOLDER
from tuimon.agent.boot import WAITED_FOR
from tuimon.errors import CannotInject
from tuimon.launch import gdb
from tuimon.launch.target import ALLOW_PTRACE, RUN_INSTEAD, Target, examine, shared
from tuimon.proc import procfs
from tuimon.proc.processes import is_alive
from tuimon.proc.ring_facts import decoded, read_ring_facts, read_side_file, ring_folders
from tuimon.text import plain

#: How long the main thread may take to come back to Python, and how often its answer is looked for.
INJECT_S, _POLL_S = 30.0, 0.005


def inject(pid: int, *, timeout_s: float = INJECT_S, stop: Callable[[], bool] = lambda: False) -> bool:
    """Have the process write markers from its next step on; True if it had them before.

    Raises CannotInject; then nothing has changed.

    ``stop``: whether to give up waiting for its main thread.
    """
    ticks = procfs.start_ticks(pid)
    if ticks is not None and read_ring_facts(pid, ticks) is not None:
        return True
    try:
        return _bring_in(pid, timeout_s, lambda: stop() or not is_alive(pid, ticks))
    except CannotInject:
        if ticks is None or is_alive(pid, ticks):
            raise
        raise CannotInject(f"process {pid} has ended meanwhile", "List the running trainings: tuimon ps") from None


def _bring_in(pid: int, timeout_s: float, stop: Callable[[], bool]) -> bool:
    target = examine(pid, AGENT_FOLDER)
    rings = shared(pid, ring_folders())
    folder = tempfile.mkdtemp(prefix="tuimon-inject-", dir=shared(pid, [tempfile.gettempdir(), "/dev/shm"])[0])
    by_gdb = target.minor < FIRST_MINOR
    try:
        script = write_script(folder, rings, "begin_in_thread" if by_gdb else "begin")
        if by_gdb:
            gdb.schedule(target, statement(script), os.path.join(folder, WAITED_FOR))
        else:
            _run_script(target, script)
        until_s, file = time.monotonic() - procfs.waited_s(pid) + timeout_s, os.path.join(folder, "answer")
        while (answer := decoded(read_side_file(file), InjectAnswer)) is None:
            if time.monotonic() - procfs.waited_s(pid) >= until_s or stop():
                break
            time.sleep(_POLL_S)
        return _result(target, answer, timeout_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a script that comes later does nothing


def write_script(folder: str, rings: list[str], begin: Literal["begin", "begin_in_thread"]) -> str:
    """Write the script to run into a private folder, and make what the main thread waits for; returns its path.

    ``rings``: folders for the ring. ``begin``: which function of ``tuimon/agent/boot.py`` the script calls.
    """
    os.mkdir(os.path.join(folder, WAITED_FOR), 0o700)
    with open(os.path.join(AGENT_FOLDER, "boot.py"), encoding="utf-8") as boot:
        text = boot.read()
    path, request = os.path.join(folder, "start.py"), {"folder": folder, "agent": AGENT_FOLDER, "rings": rings}
    with open(path, "w", encoding="utf-8") as script:
        script.write(f"{text}\n\n{begin}({request!r})\n")
    return path


def statement(script: str) -> str:
    """One statement that runs the script and leaves no name behind, for ``PyRun_SimpleString``."""
    path = ascii(script)
    run = (
        f"__import__('builtins').exec(compile(__import__('io').open({path}).read(), {path}, 'exec'),"
        " {'__name__': '_tuimon_boot'})"
    )
    return f"try:\n {run}\nexcept BaseException:\n pass\n"


def _result(target: Target, answer: InjectAnswer | None, timeout_s: float) -> bool:
    pid = target.pid
    if answer is None:
        raise CannotInject(
            f"the main thread of process {pid} did not come back to Python within {timeout_s:.0f} s",
            f"It is in a long call, or waits while other threads train: try again later. {RUN_INSTEAD}",
        )
    match answer.status:
        case "installed" | "present":
            return answer.status == "present"
        case "no torch":
            raise CannotInject(f"process {pid} has not imported torch yet", "Attach again once it trains.")
        case "no ring":
            raise CannotInject(
                f"there is no room for markers: {answer.reason}",
                f"Raise the limit: prlimit --pid {pid} --fsize=unlimited"
                if "ulimit -f" in (answer.reason or "")
                else "Free some of /dev/shm, or set TMPDIR.",
            )
        case "retry":
            raise CannotInject(f"process {pid} is in the midst of an import or a step", "Try again.")
    raise CannotInject(f"the agent does not run in process {pid}: {answer.reason}", RUN_INSTEAD)


class InjectAnswer(Struct, frozen=True):
    """The answer that the process has left: ``status`` as in ``tuimon/agent/install.py``, or "failed"."""

    status: str
    reason: str | None = None


#: The first Python 3 with ``sys.remote_exec`` (PEP 768).
FIRST_MINOR = 14
_CALL = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


def _run_script(target: Target, script: str) -> None:
    """Have the main thread run the script soon, by an interpreter of the same version. Raises CannotInject."""
    program = f"/proc/{target.pid}/exe"
    try:
        done = subprocess.run(
            [program, "-I", "-S", "-c", _CALL, str(target.pid), script],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30.0,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInject(f"the Python of process {target.pid} could not be started: {error}", RUN_INSTEAD) from None
    if done.returncode:
        last = plain(next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no output"))
        if "not enabled in the remote process" in last or "Remote debugging is not" in last:
            raise CannotInject(
                f"process {target.pid} was started with remote debugging off (-X disable-remote-debug)",
                f"Start it without PYTHON_DISABLE_REMOTE_DEBUG. {RUN_INSTEAD}",
            )
        if "ermission" in last or "not permitted" in last:
            raise CannotInject(f"ptrace is denied for process {target.pid}", ALLOW_PTRACE)
        raise CannotInject(f"sys.remote_exec failed: {last[:200]}", RUN_INSTEAD)
