"""Completions of three shells, and the manual page: they are those of the parsers, and the shells understand them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from docs.make_completions import FOLDER, texts
from tuimon.cli.commands.completions import FILES
from tuimon.cli.main import COMMANDS, run_command_line

#: What bash does on Tab, for the words of a command line.
_TAB = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_tuimon
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_the_files_are_those_of_the_parsers() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(FILES.values())
    stale = [str(path) for path, text in texts().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "out of date: make completions"


@pytest.mark.parametrize("shell", FILES)
def test_the_command_prints_what_ships(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["completions", shell]) == 0
    assert capsys.readouterr().out == (FOLDER / FILES[shell]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (("",), {*COMMANDS, "--help", "--version"}),
        (("de",), {"demo"}),
        (("demo", "st"), {"starved"}),
        (("report", "--fo"), {"--format", "--force"}),
        (("report", "--format", ""), {"text", "json", "html"}),
        (("report", "-o", ""), set()),  # files: bash's own
        (("run", "--no"), {"--no-markers", "--no-gpu", "--no-stacks"}),
        (("run", "train.py", "--no"), set()),  # options of train.py
    ],
)
def test_what_bash_suggests(words: tuple[str, ...], suggested: set[str]) -> None:
    done = subprocess.run(
        ["bash", "-c", _TAB, "bash", FOLDER / FILES["bash"], "tuimon", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == suggested


@pytest.mark.parametrize("shell", FILES)
def test_the_shell_can_read_its_file(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    done = subprocess.run([program, "-n", FOLDER / FILES[shell]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
