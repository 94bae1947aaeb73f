"""A small run of the fuzzer, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(900)  # the fuzzer itself ends a case that hangs, by its CPU time
def test_hostile_input_raises_nothing_hangs_nothing_and_reaches_no_terminal() -> None:
    words = ["--lines=80", "--nodes=40", "--rings=120", "--strings=24", "--seed=10"]
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
