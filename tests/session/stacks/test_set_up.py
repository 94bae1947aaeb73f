"""What a process does before its first step."""

import pytest

from tests.session.records import frames, session_of, stacks
from tuimon.records import Place

IMPORTLIB = "<frozen importlib._bootstrap>"
FRAMES = frames(
    ("/home/me/train.py", 1, "<module>", "from transformers import Trainer", True),
    (IMPORTLIB, 100, "_find_and_load"),
    ("/v/lib/python3.11/site-packages/transformers/trainer.py", 9, "<module>"),
    ("/home/me/train.py", 40, "main", "data = load()", True),
    ("/home/me/prep.py", 40, "load", "for line in text:", True),
    ("/home/me/prep.py", 41, "load", "words.append(line)", True),
    ("/v/lib/python3.11/site-packages/torch/_inductor/codecache.py", 9, "compile"),
    ("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 9, "__next__"),
    ("/v/lib/python3.11/site-packages/keras/src/utils.py", 2, "<module>"),
)
LOAD = Place("/home/me/prep.py", 40, "load", "for line in text:")


def doing(*windows):
    session = session_of(FRAMES, *windows)
    return session.stacks[100].set_up.doing


def test_an_import_is_named_by_the_users_own_line():
    assert doing(stacks(1, ([0, 1, 2], 20)))[:2] == ("importing transformers", 0.0)


def test_an_import_of_a_library_is_named_by_its_package():
    assert doing(stacks(1, ([3, 1, 8], 20))).words == "importing keras"
    assert doing(stacks(1, ([3, 8, 6], 20))).words == "importing keras"  # of a stack that was shortened


def test_of_several_names_the_one_whose_code_runs():
    more = frames(
        ("/home/me/train.py", 1, "<module>", "import time, keras", True),
        ("/opt/tuimon/agent/watch.py", 63, "exec_module"),
        first=20,
    )
    assert doing(more, stacks(1, ([20, 1, 8], 20))).words == "importing keras"
    assert doing(more, stacks(1, ([20, 21], 20))).words == "importing time, keras"


AGENT = "/v/lib/python3.11/site-packages/tuimon/agent/watch.py"


@pytest.mark.parametrize("line", ["import sys, time, torch", "from .models import Net", ""])
def test_our_import_hook_is_never_what_is_imported(line):
    more = frames(
        ("<stdin>", 1, "<module>", line, True),
        (AGENT, 63, "exec_module"),
        ("/v/lib/python3.11/site-packages/torch/__init__.py", 9, "<module>"),
        first=20,
    )
    assert doing(more, stacks(1, ([20, 1, 21, 22], 20))).words == "importing torch"
    assert "tuimon" not in doing(more, stacks(1, ([20, 1, 21], 20))).words
    assert "tuimon" not in doing(more, stacks(1, ([20, 21], 20))).words


def test_our_hooks_are_never_the_line_at_work():
    more = frames(("/v/lib/python3.11/site-packages/tuimon/agent/pace.py", 9, "waited"), first=20)
    timer = frames(("/usr/lib/python3.11/threading.py", 5, "run"), first=30)
    assert doing(more, timer, stacks(1, ([30, 20], 20))).place == Place("/usr/lib/python3.11/threading.py", 5, "run")


def test_a_relative_import_is_named_by_the_package_whose_code_runs():
    package = "/v/lib/python3.11/site-packages/supar/__init__.py"
    mine = frames(
        (package, 3, "<module>", "from .parsers import Parser", True),
        ("/home/me/nice/__init__.py", 3, "<module>", "from .models import Net", True),
        ("/home/me/nice/models.py", 3, "<module>"),
        first=20,
    )
    assert doing(mine, stacks(1, ([20, 1, 8], 20))).words == "importing keras"
    assert doing(mine, stacks(1, ([21, 1, 22], 20))).words == "importing .models"


def test_an_import_that_nothing_names_is_one_of_modules():
    """A command's own line calls a library, which imports when it is called."""
    command = frames(("/v/bin/nice", 6, "<module>", "sys.exit(main())", True), first=20)
    assert doing(command, stacks(1, ([20, 1], 20))).words == "importing modules"


def test_an_extension_that_is_built_is_compiled_though_other_programs_do_it():
    built = frames(
        ("/home/me/train.py", 9, "<module>", "ext = load_inline('ext', [source])", True),
        ("/v/site-packages/torch/utils/cpp_extension.py", 2285, "load_inline"),
        ("/v/site-packages/torch/utils/cpp_extension.py", 2893, "_run_ninja_build"),
        ("/usr/lib/python3.11/subprocess.py", 1196, "communicate"),
        first=20,
    )
    found = doing(built, stacks(1, ([20, 21, 22, 23], 20)))
    assert (found.words, found.place.line) == ("compiling", 9)


def test_a_program_in_a_package_imports_nothing():
    assert doing(stacks(1, ([8, 4], 20))).words == "setting up"


def test_a_function_of_the_user_with_its_hottest_line_and_since_when():
    windows = stacks(1, ([0, 1, 2], 20)), stacks(2, ([3, 4], 12), ([3, 5], 8)), stacks(3, ([3, 4], 11), ([3, 5], 9))
    assert doing(*windows) == ("setting up", 1.0, LOAD)


@pytest.mark.parametrize(("stack", "words"), [([3, 6], "compiling"), ([3, 7, 4], "preparing data")])
def test_other_words(stack, words):
    assert doing(stacks(1, (stack, 20))).words == words
