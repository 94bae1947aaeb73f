"""Has a Python 3.14 or later run a script: by ``sys.remote_exec``, called by an interpreter of the same version."""

from __future__ import annotations

import subprocess

from tuimon.errors import CannotInject
from tuimon.launch.injection.target import ALLOW_PTRACE, RUN_INSTEAD, Target
from tuimon.text import plain

#: PEP 768 came with this.
FIRST_MINOR = 14
_CALL = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_TIMEOUT_S = 30.0


def schedule(target: Target, script: str) -> None:
    """Have the main thread run the script soon. Raises CannotInject."""
    program = f"/proc/{target.pid}/exe"
    try:
        done = subprocess.run(
            [program, "-I", "-S", "-c", _CALL, str(target.pid), script],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInject(f"the Python of process {target.pid} could not be started: {error}", RUN_INSTEAD) from None
    if done.returncode:
        last = plain(next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no output"))
        raise CannotInject(*_refusal(target.pid, last))


def _refusal(pid: int, last: str) -> tuple[str, str]:
    if "not enabled in the remote process" in last or "Remote debugging is not" in last:
        return (
            f"process {pid} was started with remote debugging off (-X disable-remote-debug)",
            f"Start it without PYTHON_DISABLE_REMOTE_DEBUG. {RUN_INSTEAD}",
        )
    if "ermission" in last or "not permitted" in last:
        return f"ptrace is denied for process {pid}", ALLOW_PTRACE
    return f"sys.remote_exec failed: {last[:200]}", RUN_INSTEAD
