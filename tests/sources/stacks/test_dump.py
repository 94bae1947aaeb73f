"""A dump of a process whose stacks change meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuimon.sources.stacks.pyspy import dump

THREADS = '[{"thread_id": 7, "active": true, "owns_gil": true, "frames": []}]'

#: A busy machine may take long to start even a shell.
PATIENT_S = 100.0


def failing(folder: Path, times: int, text: str) -> str:
    """A py-spy that fails so many times, and says this."""
    program = folder / "py-spy"
    program.write_text(
        f"""#!/bin/sh
echo >> {folder}/calls
if [ $(wc -l < {folder}/calls) -le {times} ]; then
    echo '{text}' >&2
    exit 1
fi
echo '{THREADS}'
"""
    )
    program.chmod(0o755)
    return str(program)


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines())


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_torn_one_is_taken_again(tmp_path: Path, times: int) -> None:
    binary = failing(tmp_path, times, "Error: Failed to get stack traces")
    assert [thread.thread_id for thread in dump.dump(binary, os.getpid(), PATIENT_S)] == [7]
    assert calls(tmp_path) == times + 1


def test_one_that_is_torn_each_time_is_given_up(tmp_path: Path) -> None:
    binary = failing(tmp_path, 99, "Error: Failed to get stack traces")
    with pytest.raises(dump.DumpError, match="Failed to get stack traces"):
        dump.dump(binary, os.getpid(), PATIENT_S)
    assert calls(tmp_path) == 3
