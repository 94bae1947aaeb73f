"""What ``-o`` names is written as a whole, and takes the place of nothing that the user has not given up."""

import contextlib
import errno
import os
import stat
from pathlib import Path

import pytest

from tests.sources.log.literal_log import HEADER, STEPS
from tests.sources.log.literal_log import write as write_log
from tuimon.errors import TuimonError, UsageError
from tuimon.sources.outputs import check_output, output_file


def write(path: Path, *, force: bool = False) -> None:
    with output_file(str(path), force=force) as file:
        file.write(b"new")


def refused(path: Path, *, force: bool = False) -> str:
    """The reason, the same before the work as after it; nothing has been written by either."""
    before = sorted(os.listdir(path.parent))
    with pytest.raises(UsageError) as early:
        check_output(str(path), force=force)
    with pytest.raises(UsageError) as late:
        write(path, force=force)
    assert early.value.message == late.value.message and late.value.hint
    assert sorted(os.listdir(path.parent)) == before
    return late.value.message


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    check_output(str(tmp_path / "a"))
    assert os.listdir(tmp_path) == []
    write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_there_needs_force(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o644)
    assert refused(path) == f"{path} exists"
    assert path.read_text() == "old"
    write(path, force=True)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz", "any name", "after a blank line"])
def test_a_log_is_never_replaced(name: str, force: bool, tmp_path: Path) -> None:
    path = write_log(tmp_path / name, HEADER, STEPS)
    if "blank" in name:
        path.write_bytes(b"\n" + path.read_bytes())
    before = path.read_bytes()
    assert "is a tuimon log" in refused(path, force=force)
    assert path.read_bytes() == before


@pytest.mark.parametrize("linked", [False, True])
def test_nothing_but_files_is_written_to(linked: bool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, says in ((tmp_path / "pipe", "not a regular file"), (tmp_path / "folder", "is a folder")):
        path = name
        if linked:
            path = tmp_path / f"to {name.name}"
            path.symlink_to(name)
        assert says in refused(path, force=True)
    device = tmp_path / "null"
    device.symlink_to("/dev/null")
    assert "not a regular file" in refused(device, force=True)


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    path, target = tmp_path / "latest", tmp_path / "elsewhere" / "a"
    target.parent.mkdir()
    path.symlink_to(target)
    assert "link to nothing" in refused(path, force=True)
    target.write_text("old")
    assert "exists" in refused(path)
    write(path, force=True)
    assert path.is_symlink() and target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["a"]


@pytest.mark.parametrize(("number", "hint"), [(errno.ENOSPC, "more room"), (errno.EROFS, "the right to write")])
def test_a_failure_leaves_all_as_it_was(number: int, hint: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a.part").write_text("the user's own")
    with pytest.raises(TuimonError) as full, output_file(str(tmp_path / "a"), force=True) as file:
        file.write(b"half")
        raise OSError(number, os.strerror(number))
    assert f"cannot be written: {os.strerror(number)}" in full.value.message and hint in (full.value.hint or "")
    with contextlib.suppress(KeyboardInterrupt), output_file(str(tmp_path / "a"), force=True):
        raise KeyboardInterrupt
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "a.part": "the user's own"}


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_has_come_meanwhile_stays(has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "as on vfat")

    if not has_links:
        monkeypatch.setattr(os, "link", fails)
    write(tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"new"
    with pytest.raises(UsageError, match="exists"), output_file(str(tmp_path / "a")):
        (tmp_path / "a").write_text("another's")
    with pytest.raises(UsageError, match="is a tuimon log"), output_file(str(tmp_path / "b"), force=True):
        write_log(tmp_path / "log", HEADER, STEPS).rename(tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
