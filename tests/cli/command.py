"""The real command line, in a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TUIMON = (sys.executable, "-m", "tuimon")
#: without what these tests are not about
LEAN = ("--no-stacks", "--no-gpu")


def tuimon(*words: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        [*TUIMON, *words],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@contextlib.contextmanager
def running(*words: str, cwd: Path, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run it in a session of its own; whatever is left of that session is ended."""
    process = subprocess.Popen(  # type: ignore[call-overload]
        [*TUIMON, *words],
        cwd=cwd,
        text=True,
        start_new_session=True,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def script(folder: Path, text: str) -> str:
    """Write a script; returns its path."""
    path = folder / "train.py"
    path.write_text(text)
    return str(path)
