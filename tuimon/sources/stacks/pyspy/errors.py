"""The meaning of py-spy's messages for a user: one sentence, and the next step."""

from __future__ import annotations

import os

from tuimon.installation import install_command
from tuimon.proc import processes, procfs
from tuimon.proc.processes import in_container
from tuimon.proc.pythons import is_free_threaded
from tuimon.sources.base import Problem
from tuimon.text import plain


def no_binary() -> Problem:
    """There is no py-spy."""
    return Problem(
        "no stack samples: py-spy was not found beside tuimon, on PATH or among the installed packages",
        f"Install it beside tuimon: {install_command('py-spy')}",
        denied=True,
    )


def explain(message: str, pid: int) -> Problem:
    """Translate the output of a py-spy that failed on ``pid``."""
    text = message.lower()
    if "permission denied" in text or "operation not permitted" in text:
        return _denied(pid)._replace(denied=_owner(pid) == os.geteuid())
    if is_free_threaded(pid):
        return Problem(
            f"no stack samples: py-spy cannot read free-threaded Python ({plain(processes.program_name(pid))})",
            "A training under tuimon run samples its own stacks; markers, threads and GPUs are shown without them too",
            denied=_owner(pid) == os.geteuid(),
        )
    if "unsupported version" in text:
        version = _after(message, "Unsupported version of Python: ") or "of this process"
        return Problem(f"no stack samples: py-spy does not know Python {version}", f"Upgrade py-spy: {_upgrade()}")
    if "failed to find a python interpreter" in text or "both python and libpython are invalid" in text:
        return _unreadable(pid)
    if "failed to find python version" in text or "no python processes found" in text:
        return Problem(
            f"no stack samples: process {pid} is not a Python interpreter, or has not started yet",
            "If it runs Python inside another program (embedded or frozen), py-spy cannot read it",
            passing=True,
        )
    return Problem(
        f"no stack samples of process {pid}: {_first_line(message)}",
        "Try it alone: py-spy dump --pid " + str(pid),
        passing=True,
    )


def _denied(pid: int) -> Problem:
    owner = _owner(pid)
    if owner is not None and os.geteuid() not in (0, owner):
        message = f"no stack samples: process {pid} belongs to another user (uid {owner})"
        return Problem(message, "Run tuimon as that user, or with sudo")
    scope = yama_scope()
    if in_container():
        return Problem(
            f"no stack samples: ptrace of process {pid} is denied in this container",
            "Start the container with --cap-add SYS_PTRACE "
            "(Kubernetes: securityContext.capabilities.add: [SYS_PTRACE])",
            passing=scope == 1,  # as below
        )
    if scope == 3:
        return Problem("no stack samples: this kernel forbids ptrace (Yama scope 3)", "Only a reboot can change that")
    if scope == 2:
        return Problem("no stack samples: ptrace is for root only (Yama scope 2)", "Run tuimon with sudo")
    if scope == 1:
        return Problem(
            f"no stack samples: ptrace of process {pid} is denied (Yama scope 1: only its parents may)",
            "Start the training with tuimon run, or allow it: sudo sysctl kernel.yama.ptrace_scope=0",
            passing=True,  # a process under tuimon run allows it once it has started
        )
    return Problem(
        f"no stack samples: ptrace of process {pid} is denied",
        "A security profile (seccomp, SELinux, AppArmor) or a process that made itself undumpable forbids it",
    )


def _upgrade() -> str:
    return install_command("py-spy", upgrade=True)


def _unreadable(pid: int) -> Problem:
    return Problem(
        f"no stack samples: py-spy cannot read the Python of process {pid}",
        f"It gives up where a thread is more than 4,000 calls deep; else upgrade py-spy: {_upgrade()}",
        passing=True,
    )


def yama_scope() -> int | None:
    """Yama's ptrace scope; None on a kernel without Yama."""
    raw = procfs.read_bytes("/proc/sys/kernel/yama/ptrace_scope", 16)
    return int(raw) if raw and raw.strip().isdigit() else None


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith("Error")), lines[0] if lines else "py-spy gave no reason")
    return plain(first.removeprefix("Error:").strip())[:200]


def _after(message: str, start: str) -> str:
    rest = message.partition(start)[2].split()
    return plain(rest[0])[:20] if rest else ""
