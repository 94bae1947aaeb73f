"""Which modules tuimon imports, where the training has others of the same names; and what makes the start quick."""

import importlib
import os
import subprocess
import sys

import pytest

from tests.cli.command import LEAN, TUIMON, script
from tests.waiting import until
from tuimon.cli.quick_start import message_if_slow

#: What tuimon's dependencies and parts of the standard library that it loads late are called.
NAMES = ("msgspec", "textual", "pynvml", "statistics", "selectors", "argparse")
#: As the console script has it, which tuimon may be installed without here.
CONSOLE = "import sys\nfrom tuimon.__main__ import main\nsys.exit(main())\n"


@pytest.fixture
def foreign(tmp_path):
    """A folder with modules of those names that cannot be imported."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text("raise RuntimeError('foreign')\n")
    (folder / "rich").mkdir()
    (folder / "rich" / "__init__.py").write_text("raise RuntimeError('foreign')\n")
    return folder


def run(words, cwd, *python_path):
    """Run it with these folders in PYTHONPATH, and the one that the tests import tuimon from, if it needs that."""
    folders = [*map(str, python_path), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False
    )


WATCHED = ("run", *LEAN, "--interval", "0.2", "--log", "l.jsonl", "--", sys.executable)
TRAINING = """
import time
time.sleep(0.5)
try:
    import msgspec
except RuntimeError as error:
    print("the training's own is", error)
raise SystemExit(6)
"""


def test_the_folders_in_pythonpath_are_the_trainings_alone(foreign, tmp_path):
    done = run([*TUIMON, *WATCHED, script(tmp_path, TRAINING)], tmp_path, foreign)
    assert (done.returncode, done.stdout) == (6, "the training's own is foreign\n"), done.stderr
    assert "ended with exit code 6" in done.stderr
    assert run([*TUIMON, "report", "l.jsonl"], tmp_path, foreign).returncode == 0


def test_the_working_directory_is_the_trainings(foreign, tmp_path):
    done = run([*TUIMON, *WATCHED, script(tmp_path, TRAINING)], foreign)
    assert done.returncode == 6 and done.stdout == "", done.stderr


def test_the_folder_of_the_console_script_holds_no_modules(foreign, tmp_path):
    (foreign / "tuimon-console").write_text(CONSOLE)
    done = run([sys.executable, str(foreign / "tuimon-console"), "ps"], tmp_path, foreign)
    assert done.returncode == 0, done.stderr


def bare(cwd, *python_path):
    """Run it where nothing else is installed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"PYTHONPATH": os.pathsep.join(map(str, python_path))} if python_path else {}
    words = [sys.executable, "-S", "-m", "tuimon", "ps"]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=90, check=False)


def install(names, folder):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).symlink_to(os.path.dirname(importlib.import_module(name).__file__ or ""))


NEEDED = ("msgspec", "psutil", "rich", "textual")


@pytest.mark.parametrize("order", ["ours packages foreign", "packages foreign ours", "foreign whole"])
def test_an_installation_in_pythonpath_is_found_with_all_it_needs(order, foreign, tmp_path):
    """As by ``pip install --target``, into several folders, or into one, which comes before others."""
    install(["tuimon"], tmp_path / "ours")
    install(NEEDED, tmp_path / "packages")
    install(["tuimon", *NEEDED], tmp_path / "whole")
    done = bare(tmp_path, *(tmp_path / name for name in order.split()))
    assert done.returncode == 0, done.stderr


def test_a_start_that_takes_long_says_so_before_the_screen_comes(capsys):
    said = []
    with message_if_slow("loading", after_s=0.0):
        until(lambda: said.append(capsys.readouterr().err) or "loading\n" in "".join(said), "the word")
    with message_if_slow("loading", after_s=3600.0):
        pass
    assert capsys.readouterr().err == ""
