"""Small programs that the tests of sources look at from outside."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil


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
