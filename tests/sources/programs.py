"""Small programs that the tests of sources look at from outside."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


@contextlib.contextmanager
def running(
    directory: Path, source: str, *arguments: str, python: str = sys.executable
) -> Iterator[subprocess.Popen[str]]:
    """A Python program from its source; yields when it has printed a first line, ends it afterwards."""
    script = directory / "program.py"
    script.write_text(source)
    process = subprocess.Popen(
        [python, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdin
    try:
        assert process.stdout.readline()
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children():
                child.kill()
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def until(look: Callable[[], T | None], what: str, timeout_s: float = 30.0) -> T:
    """Call ``look`` until it returns something true."""
    give_up_s = time.monotonic() + timeout_s
    while time.monotonic() < give_up_s:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s} s for {what}")
