"""Lines of source files, and which files have none."""

import os
from pathlib import Path

from tuimon.proc.target_files import Rights, TargetFiles
from tuimon.sources.source_text import SourceText


def test_source_text(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(b"x = 1\n\t y = '\x1b[31m[bold]\x07'\t# caf\xe9 \n" + b"z" * 500 + b"\n")
    source = SourceText()
    assert source.line(str(script), 1) == "x = 1"
    assert source.line(str(script), 2) == "y = '[bold]' # caf\ufffd"
    assert source.line(str(script), 3) == "z" * 160
    assert [source.line(str(script), number) for number in (0, -1, 4)] == ["", "", ""]
    script.unlink()
    assert source.line(str(script), 1) == "x = 1"  # read once


def test_files_that_have_no_source_text(tmp_path: Path) -> None:
    huge, pipe, changed = tmp_path / "huge.py", tmp_path / "pipe.py", tmp_path / "changed.py"
    huge.write_bytes(b"x\n" * (3 << 20))
    os.mkfifo(pipe)
    changed.write_text("x\n")
    os.utime(changed, (2000.0, 2000.0))
    source = SourceText()
    for file in (huge, pipe, tmp_path, tmp_path / "gone.py", "nul\0byte.py", "<ipython-input-1>"):
        assert source.line(str(file), 1) == ""
    assert source.line(str(changed), 1, TargetFiles(None, 1000.0)) == ""  # not what the process runs any more
    assert SourceText().line(str(changed), 1, TargetFiles(None, 3000.0)) == "x"


def test_text_is_not_shared_between_processes_of_other_rights(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("secret = 1\n")
    script.chmod(0o600)
    source = SourceText()
    assert source.line(str(script), 1) == "secret = 1"
    stranger = Rights(os.getpid(), frozenset({12345}), frozenset({12345}))
    gone = 2**22 + 1  # no pid is so large
    assert source.line(str(script), 1, TargetFiles(gone, ended=stranger)) == ""
    assert source.line(str(script), 1, TargetFiles(gone)) == ""
