"""What a process writes, and to which kind of file system: of this very process."""

from __future__ import annotations

import os
from pathlib import Path

from tuimon.sources.processes.writing import Writing


def file_system_of(folder: Path) -> str:
    """By the longest mount point that leads there."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [words for words in mounts if f"{folder}/".startswith(words[1].rstrip("/") + "/")]
    return max(enumerate(inside), key=lambda each: (len(each[1][1]), each[0]))[1][2]


def test_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    writing = Writing(os.getpid())
    assert writing.read() == (None, "")
    with (tmp_path / "last.pt").open("wb") as file, (tmp_path / "data").open("wb+") as other:
        other.write(b"x")
        file.write(bytes(8 << 20))
        written, file_system = writing.read()
    assert written is not None and 8 << 20 <= written < 9 << 20
    assert file_system == file_system_of(tmp_path)


def test_a_process_that_is_gone() -> None:
    assert Writing(2**22 + 1).read() == (None, "")
