"""Where outputs of runs are kept, and which files that a process names are outputs of ours."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from tuimon.errors import LaunchError
from tuimon.launch.places import output_path, own_output, state_directory


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder's base; and a temporary folder beside it."""
    (tmp_path / "state").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "state"


def test_an_output_of_ours_is_recognised(base: Path) -> None:
    path = output_path("r1")
    assert own_output(path, "r1", os.getuid()) is None  # not made yet
    Path(path).touch(0o600)
    assert own_output(path, "r1", os.getuid()) == path


def test_any_other_file_is_none(base: Path, tmp_path: Path) -> None:
    path = Path(output_path("r1"))
    path.touch(0o600)
    secret = tmp_path / "secret.out"
    secret.write_text("root's own")
    assert own_output(str(path), "r2", os.getuid()) is None  # of another run
    assert own_output(str(path), "r1", os.getuid() + 1) is None  # named by another user's process
    assert own_output(str(secret), "secret", os.getuid()) is None
    assert own_output(str(path.parent / "../../../secret.out"), "../../../secret", os.getuid()) is None
    assert own_output(None, None, os.getuid()) is None
    path.unlink()
    path.symlink_to(secret)
    assert own_output(str(path), "r1", os.getuid()) is None
    path.unlink()
    os.mkfifo(path)
    assert own_output(str(path), "r1", os.getuid()) is None


def test_folders_are_made_private_whatever_the_umask(base: Path) -> None:
    before = os.umask(0)
    try:
        base.rmdir()
        folder = state_directory()
    finally:
        os.umask(before)
    assert folder == str(base / "tuimon" / "runs")
    modes = [stat.S_IMODE(os.stat(made).st_mode) for made in (base, base / "tuimon", folder)]
    assert modes == [0o700, 0o700, 0o700]


def test_a_folder_that_others_can_write_to_is_not_used(base: Path, tmp_path: Path) -> None:
    shared = base / "tuimon"
    shared.mkdir()
    shared.chmod(0o777)  # whoever writes here can put a folder of his in the place of ours
    fallback = tmp_path / "temporary" / f"tuimon-{os.getuid()}"
    assert state_directory() == str(fallback / "runs")
    fallback.chmod(0o777)
    with pytest.raises(LaunchError, match=r"other users may write to .*/tuimon .*; other users may write to .*tuimon-"):
        state_directory()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o777
