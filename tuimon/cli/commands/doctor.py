"""``tuimon doctor``: checks what works on this machine, and how to fix the rest. No check changes anything."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tuimon.agent.ring.files import refused_directories, ring_directories, ring_directory
from tuimon.cli.options import parser_of
from tuimon.errors import TuimonError
from tuimon.installation import install_command, version_of
from tuimon.launch.child import state_directory
from tuimon.launch.resolve import user_python, versions_of_user_python
from tuimon.proc.processes import PTRACE_IN_CONTAINER
from tuimon.proc.procfs import read_fields
from tuimon.views.format import plain, size
from tuimon.views.json_text import json_text

_DOC = """\
Check what tuimon needs: Python, py-spy, the permission to read processes, shared memory, NVML, the terminal.
The exit code is 1 if a check fails without which nothing can be watched, otherwise 0."""

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def main(argv: Sequence[str]) -> int:
    parser = parser_of("doctor", _DOC)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parsed = parser.parse_args(argv)
    checks = all_checks()
    if parsed.format == "json":
        content = {"schema": 1, "checks": [check._asdict() for check in checks]}
        sys.stdout.write(json_text(content, indent=2))
    else:
        sys.stdout.write("\n".join(lines(checks)) + "\n")
    return 1 if any(check.status == "fail" and check.essential for check in checks) else 0


def lines(checks: Sequence[Check]) -> list[str]:
    """The checks as text, each problem with its fix."""
    width = max(len(check.name) for check in checks)
    out = []
    for check in checks:
        out.append(f"{_MARKS[check.status]}  {check.name:<{width}}  {plain(check.message)}")
        if check.fix and check.status != "ok":
            out.append(f"      {'':<{width}}  -> {plain(check.fix)}")
    return out


Status = Literal["ok", "warn", "fail"]

#: Shared memory that the ring of one training process takes (2.3 MB), rounded up.
RING_BYTES = 3 * 1024 * 1024


class Check(NamedTuple):
    """The result of one check; the fields have the same names in JSON."""

    name: str
    status: Status
    message: str
    fix: str | None = None
    essential: bool = False


def all_checks() -> list[Check]:
    """Every check, in the order shown; a check that fails to run counts as a warning."""
    found = []
    for check in (_python, _user_python, py_spy, ptrace, native, shared_memory, _output, _nvml, _amdsmi, _terminal):
        try:
            if (made := check()) is not None:
                found.append(made)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            name = check.__name__.strip("_").replace("_", " ")
            found.append(Check(name, "warn", f"could not be checked: {error}"))
    return found


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.platform != "linux":
        return Check("system", "fail", f"{sys.platform}: tuimon needs Linux", "Run it where the training runs.", True)
    return Check("tuimon", "ok", f"tuimon {version_of('tuimon')} on Python {version}")


def _user_python() -> Check:
    python, found = user_python(), versions_of_user_python()
    if found is None:
        return Check("python", "warn", f"{python} does not work", "Activate the environment of your training.")
    version, torch = found
    if not torch:
        return Check(
            "python",
            "warn",
            f"`python` is {python} ({version}), without torch",
            "Activate the environment of your training.",
        )
    return Check("python", "ok", f"`python` is {python} ({version}, torch {torch})")


_INSIDE = "stacks in-process only, under tuimon run"


def py_spy() -> Check:
    """Check that py-spy is installed and can read a Python process."""
    from tuimon.sources.stacks import failures, pyspy

    binary = pyspy.find()
    if binary is None:
        message = f"not found: {_INSIDE}, no phases without markers"
        return Check("py-spy", "fail", message, install_command("py-spy"), True)
    version = version_of("py-spy")
    # the child waits for its stdin to close, so that it ends even if tuimon is killed
    command, pipe = [sys.executable, "-c", "print(flush=True); input()"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            if any(thread.stack for thread in pyspy.dump(binary, child.pid, 20.0)):  # one that takes longer hangs
                return Check("py-spy", "ok", f"py-spy {version} can read a Python process")
            failed = "no stacks"
        except pyspy.DumpError as error:
            failed = str(error)
    if "ermission" in failed:
        message = f"py-spy {version} may not even read a child process of its own: {_INSIDE}"
        return Check("py-spy", "fail", message, PTRACE_IN_CONTAINER, True)
    upgrade = install_command("py-spy", upgrade=True)
    return Check("py-spy", "warn", f"py-spy {version} failed: {failures.first_line(failed)}", upgrade)


def ptrace() -> Check:
    """Check that this user's processes may be read."""
    from tuimon.sources.stacks.failures import YAMA_DENIES, yama_scope

    capabilities = int(read_fields("/proc/self/status").get("CapEff", "0"), 16)
    may_trace = capabilities >> 19 & 1  # CAP_SYS_PTRACE, linux/capability.h
    scope = yama_scope()
    if not scope or may_trace:
        return Check("ptrace", "ok", "all your processes may be read")
    if scope in YAMA_DENIES:
        message, hint = YAMA_DENIES[scope]
        return Check("ptrace", "warn", f"{message}: no process can be sampled", hint)
    message = f"ptrace_scope is {scope}: only processes that tuimon run started can be sampled"
    hint = "For attach: sudo sysctl kernel.yama.ptrace_scope=0 (tuimon run works without)"
    return Check("ptrace", "warn", message, hint)


def native() -> Check:
    """Check that the kernel reports which code threads run below Python."""
    from tuimon.sources.native import why_refused

    if (denied := why_refused()) is None:
        return Check("native", "ok", "what runs below Python is measured")
    return Check("native", "warn", f"{denied[0]}: what runs below Python is not measured", denied[1])


def shared_memory() -> Check:
    """Check that there is a folder for rings that only this user can write to."""
    refused = "; ".join(map(plain, refused_directories().values()))
    folder = ring_directory()
    if folder is None:
        reason = refused or f"{' and '.join(map(plain, ring_directories()))} cannot be written"
        return Check("shared memory", "fail", f"{reason}: no markers", "Mount /dev/shm, or set TMPDIR.")
    base = folder if os.path.isdir(folder) else os.path.dirname(folder)
    free = shutil.disk_usage(base).free
    if free < RING_BYTES:
        return Check(
            "shared memory",
            "fail",
            f"{base} has {size(free)} left, but a training process needs {size(RING_BYTES)}: no markers",
            "In a container: docker run --shm-size 1g (DataLoader workers need it too)",
        )
    if refused:
        return Check(
            "shared memory", "warn", f"{refused}: rings go to {base}", "Remove that folder, or ask its owner to."
        )
    if not base.startswith("/dev/shm"):
        more = "Mount /dev/shm with 1 GB for less overhead (docker run --shm-size 1g)."
        return Check("shared memory", "warn", f"rings go to {base}, on a disk", more)
    return Check("shared memory", "ok", f"{base}, {size(free)} free")


def _output() -> Check:
    try:
        return Check("output", "ok", f"outputs of runs go to {state_directory()}")
    except TuimonError as error:
        return Check("output", "warn", error.message, error.hint)


def _nvml() -> Check:
    from tuimon.sources.base import Problem
    from tuimon.sources.gpus.nvml import Nvml, inventory

    found = Nvml.query_once(inventory)
    if isinstance(found, Problem):
        without = "Without an NVIDIA GPU nothing is missing" if found.expected else None
        return Check("nvml", "warn", found.message, found.hint or without)
    parts = [f"driver {found.driver}, {found.gpus} GPU{'s' if found.gpus != 1 else ''}"]
    if found.instances:
        parts.append(f"{found.instances} MIG instance{'s' if found.instances != 1 else ''}")
    if found.with_activity < found.gpus:
        which = "no" if not found.with_activity else f"for {found.with_activity} of them"
        parts.append(f"{which} SM, tensor and DRAM activity (Hopper and later have it)")
    if not found.pids_known:
        parts.append("which processes compute is unknown in this container (drivers from 535.113 on report it)")
    return Check("nvml", "ok", "; ".join(parts))


def _amdsmi() -> Check | None:
    """The check of AMD's library; None if it is not installed."""
    from tuimon.sources.base import Problem
    from tuimon.sources.gpus.amdsmi import AmdSmi

    if not AmdSmi.is_installed():
        return None
    count = AmdSmi.query_once(lambda _, number: number)
    if isinstance(count, Problem):
        return Check("amdsmi", "warn", count.message, count.hint)
    return Check("amdsmi", "ok", f"{count} AMD GPU{'s' if count != 1 else ''} (never tried on real hardware)")


def _terminal() -> Check:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return Check("terminal", "ok", "not a terminal: commands run headless")
    term = os.environ.get("TERM", "")
    if term in ("", "dumb"):
        return Check("terminal", "warn", f"TERM is {term or 'not set'}: headless only", "export TERM=xterm-256color")
    columns, rows = os.get_terminal_size(sys.stderr.fileno())
    colours = "true colour" if os.environ.get("COLORTERM") in ("truecolor", "24bit") else "colours of TERM"
    if "NO_COLOR" in os.environ:
        colours = "no colours (NO_COLOR)"
    message = f"{plain(term)}, {columns}x{rows}, {colours}, {sys.stderr.encoding}"
    if columns < 80 or rows < 24:
        return Check("terminal", "warn", message, "The full screen needs 80x24 to show everything.")
    if "utf" not in (sys.stderr.encoding or "").lower():
        return Check("terminal", "warn", message, "For finer charts: export LANG=C.UTF-8")
    return Check("terminal", "ok", message)


def version_lines() -> list[str]:
    """Versions of tuimon, its Python and py-spy, the platform, and torch in the ``python`` of ``tuimon run``."""
    lines = [
        f"tuimon {version_of('tuimon')}",
        f"Python {platform.python_version()} ({plain(sys.executable)})",
        f"platform {plain(platform.platform())}",
        f"py-spy {version_of('py-spy')}",
    ]
    python, found = plain(user_python()), versions_of_user_python()
    if found is None:
        return [*lines, f"torch ? ({python} does not work)"]
    version, torch = found
    return [*lines, f"torch {torch or 'none'} (in {python}, Python {version})"]
