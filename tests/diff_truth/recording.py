"""Records trainings under tuimon, alone or beside busy programs; what is there already is not recorded again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TRAINING = Path(__file__).with_name("training.py")
_BUSY = "while True: pass"


class Wanted(NamedTuple):
    """A training to record."""

    name: str
    kind: str
    seconds: float
    slower: float = 1.0
    busy: int = 0  # programs beside it that take a core each


def record(wanted: Wanted, folder: Path) -> Path:
    """Its log. Raises CalledProcessError."""
    path = folder / f"{wanted.name}.jsonl"
    if path.exists():
        return path
    fresh = path.with_suffix(".part")
    training = [str(TRAINING), "--kind", wanted.kind, f"--seconds={wanted.seconds:g}", f"--slower={wanted.slower:g}"]
    options = ["--headless", "--no-gpu", "--interval", "0.5", "--force", "--log", str(fresh)]
    with _beside(wanted.busy):
        subprocess.run(
            [sys.executable, "-m", "tuimon", "run", *options, "--", sys.executable, *training],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    fresh.rename(path)
    return path


@contextlib.contextmanager
def _beside(busy: int) -> Iterator[None]:
    programs = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(busy)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()
