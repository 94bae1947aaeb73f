"""What the words after ``tuimon run`` mean."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tuimon.errors import NoSuchScript, NotExecutable, UsageError
from tuimon.launch.resolve import resolve, user_python


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(path: Path, mode: int = 0o755, text: str = "#!/bin/sh\n") -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_script_runs_under_the_users_python(folder: Path) -> None:
    (folder / "train.py").touch()
    assert resolve(["train.py", "--lr", "0.1"]) == [user_python(), "train.py", "--lr", "0.1"]


def test_an_executable_script_is_still_run_by_python(folder: Path) -> None:
    program(folder / "train.py", text="#!/no/such/python\n")
    assert resolve(["./train.py"]) == [user_python(), "./train.py"]


def test_a_module(folder: Path) -> None:
    assert resolve(["-m", "pkg.train", "--x"]) == [user_python(), "-m", "pkg.train", "--x"]
    with pytest.raises(UsageError, match="module"):
        resolve(["-m"])


def test_the_python_of_the_active_environment_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("python", "python3"):
        program(folder / name)
    monkeypatch.setenv("PATH", str(folder))
    assert user_python() == str(folder / "python")
    (folder / "python").unlink()
    assert user_python() == str(folder / "python3")
    (folder / "python3").unlink()
    assert user_python() == sys.executable


def test_any_other_program_stays_as_it_is(folder: Path) -> None:
    assert resolve(["bash", "train.sh"]) == ["bash", "train.sh"]
    program(folder / "launch")
    assert resolve(["./launch", "x"]) == ["./launch", "x"]


def test_a_directory_needs_a_main(folder: Path) -> None:
    (folder / "pkg").mkdir()
    with pytest.raises(NotExecutable, match="is a directory without"):
        resolve(["pkg"])
    (folder / "pkg" / "train.py").touch()
    with pytest.raises(NotExecutable) as error:
        resolve(["pkg"])
    assert "pkg/train.py" in (error.value.hint or "")
    (folder / "pkg" / "__main__.py").touch()
    assert resolve(["pkg", "x"]) == [user_python(), "pkg", "x"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [("trian.py", "train.py"), ("train", "train.py"), ("nowhere/train.py", "no folder")],
)
def test_what_is_not_there_has_a_suggestion(folder: Path, word: str, hint: str) -> None:
    (folder / "train.py").touch()
    with pytest.raises(NoSuchScript) as error:
        resolve([word])
    assert word in error.value.message
    assert hint in (error.value.hint or "")
    assert error.value.exit_code == 2


def test_a_file_that_cannot_be_executed(folder: Path) -> None:
    program(folder / "train", 0o644, "#!/usr/bin/env python3\n")
    with pytest.raises(NotExecutable) as error:
        resolve(["./train"])
    assert "tuimon run python ./train" in (error.value.hint or "")
    program(folder / "go.sh", 0o644)
    with pytest.raises(NotExecutable) as error:
        resolve(["./go.sh"])
    assert "chmod +x ./go.sh" in (error.value.hint or "")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_an_unreadable_script(folder: Path) -> None:
    program(folder / "train.py", 0o000)
    with pytest.raises(NotExecutable, match="cannot be read"):
        resolve(["train.py"])


def test_names_are_shown_without_control_characters(folder: Path) -> None:
    with pytest.raises(NoSuchScript) as error:
        resolve(["\x1b[31mtrain\x07.py"])
    assert "\x1b" not in error.value.message
    assert "\x07" not in error.value.message


@pytest.mark.parametrize("words", [[], [""]])
def test_nothing_to_run(words: list[str]) -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        resolve(words)
