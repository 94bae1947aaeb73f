"""From the words after ``tuimon run`` to the argument list that is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tuimon.errors import UsageError
from tuimon.text import plain

_PYTHON_SUFFIXES = (".py", ".pyw", ".pyz")
_WAYS = "Give a script (train.py), -m MODULE, or a program that is on PATH."


def user_python() -> str:
    """The ``python`` of the user's shell: the active environment's, which need not be tuimon's own."""
    return shutil.which("python") or shutil.which("python3") or sys.executable


def versions_of_user_python() -> tuple[str, str] | None:
    """The versions of ``user_python`` and of its torch, "" without; None if it does not work. Imports no torch."""
    try:
        done = subprocess.run(
            [user_python(), "-c", _VERSIONS],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        version, torch = done.stdout.splitlines()[:2]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return (plain(version), plain(torch)) if done.returncode == 0 else None


# finds torch's version without importing it, which takes seconds
_VERSIONS = """
import subprocess
import sys
from importlib import metadata
print("%d.%d.%d" % sys.version_info[:3])
try:
    print(metadata.version("torch"))
except metadata.PackageNotFoundError:
    print("")
"""


def resolve(argv: Sequence[str]) -> list[str]:
    """The argument list to start for ``COMMAND [ARGS...]``; raises UsageError with the next step."""
    if not argv or not argv[0]:
        raise UsageError("nothing to run", "Give a script, -m MODULE or a program: tuimon run train.py")
    first = argv[0]
    if first == "-m":
        if len(argv) < 2:
            raise UsageError("-m needs the name of a module", "For example: tuimon run -m mypackage.train")
        return [user_python(), *argv]
    if os.path.isdir(first):
        if os.path.isfile(os.path.join(first, "__main__.py")):
            return [user_python(), *argv]
        scripts = (
            sorted(name for name in os.listdir(first) if name.endswith(".py")) if os.access(first, os.R_OK) else []
        )
        inside = os.path.join(first, scripts[0]) if len(scripts) == 1 else None
        hint = f"Did you mean {plain(inside)}?" if inside else "Name a script inside it, or add a __main__.py."
        raise UsageError(f"{plain(first)} is a directory without a __main__.py", hint)
    if first.endswith(_PYTHON_SUFFIXES):
        if not os.path.exists(first):
            raise UsageError(f"there is no script {plain(first)}", _did_you_mean(first))
        if not os.access(first, os.R_OK):
            raise UsageError(f"{plain(first)} cannot be read", f"Check it with: ls -l {plain(first)}")
        return [user_python(), *argv]
    return _program(first, argv)


def _program(first: str, argv: Sequence[str]) -> list[str]:
    if shutil.which(first):
        return list(argv)
    if os.path.isfile(first):
        if os.path.dirname(first):
            raise UsageError(f"{plain(first)} is not executable", _how_to_run(first))
        hint = f"It is in this folder: tuimon run ./{plain(first)}" if os.access(first, os.X_OK) else _how_to_run(first)
        raise UsageError(f"{plain(first)} is not a program on PATH", hint)
    if os.path.dirname(first):
        raise UsageError(f"there is no program {plain(first)}", _did_you_mean(first))
    raise UsageError(f"there is no script or program {plain(first)}", _did_you_mean(first, _WAYS))


def _how_to_run(path: str) -> str:
    try:
        with open(path, "rb") as file:
            first_line = file.readline(200)
    except OSError:
        first_line = b""
    shown = plain(path)
    if first_line.startswith(b"#!") and b"python" not in first_line:
        return f"Make it executable: chmod +x {shown}"
    return f"Run it with Python: tuimon run python {shown} (or make it executable: chmod +x {shown})"


def _did_you_mean(path: str, otherwise: str = "") -> str:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"There is no folder {plain(folder)} either."
    from difflib import get_close_matches  # noqa: PLC0415  (of use after a mistake alone)

    try:
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        names = []
    close = get_close_matches(os.path.basename(path), names)
    if close:
        where = os.path.dirname(path)
        return f"Did you mean {' or '.join(plain(os.path.join(where, name)) for name in close)}?"
    return otherwise or f"It was looked for in {plain(os.path.abspath(folder))}"
