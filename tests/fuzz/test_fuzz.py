"""A small run of the fuzzer, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("sizes", [(200, 0, 0), (0, 300, 0), (0, 0, 60)], ids=["lines", "rings", "strings"])
def test_hostile_input_raises_nothing_hangs_nothing_and_reaches_no_terminal(sizes: tuple[int, int, int]) -> None:
    lines, rings, strings = sizes
    words = [f"--lines={lines}", f"--rings={rings}", f"--strings={strings}", "--seed=10"]
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
