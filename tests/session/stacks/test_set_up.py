"""What a process does before its first step."""

import pytest

from tests.session.records import counted, frames, session_of, stacks
from tuimon.records import Place

LIBRARIES = "/v/lib/python3.11/site-packages"
PLACES = {
    "trainer": ("/home/me/train.py", 1, "<module>", "from transformers import Trainer", True),
    "two": ("/home/me/train.py", 1, "<module>", "import time, keras", True),
    "with torch": ("<stdin>", 1, "<module>", "import sys, time, torch", True),
    "no text": ("<stdin>", 1, "<module>", "", True),
    "own": ("/home/me/nice/__init__.py", 3, "<module>", "from .models import Net", True),
    "of a package": (f"{LIBRARIES}/supar/__init__.py", 3, "<module>", "from .parsers import Parser", True),
    "command": ("/v/bin/nice", 6, "<module>", "sys.exit(main())", True),
    "extension": ("/home/me/train.py", 9, "<module>", "ext = load_inline('ext', [source])", True),
    "main": ("/home/me/train.py", 40, "main", "data = load()", True),
    "load": ("/home/me/prep.py", 40, "load", "for line in text:", True),
    "append": ("/home/me/prep.py", 41, "load", "words.append(line)", True),
    "import": ("<frozen importlib._bootstrap>", 100, "_find_and_load"),
    "our import": (f"{LIBRARIES}/tuimon/agent/watch.py", 63, "exec_module"),
    "our hook": (f"{LIBRARIES}/tuimon/agent/pace.py", 9, "waited"),
    "thread": ("/usr/lib/python3.11/threading.py", 5, "run"),
    "transformers": (f"{LIBRARIES}/transformers/trainer.py", 9, "<module>"),
    "keras": (f"{LIBRARIES}/keras/src/utils.py", 2, "<module>"),
    "torch": (f"{LIBRARIES}/torch/__init__.py", 9, "<module>"),
    "models": ("/home/me/nice/models.py", 3, "<module>"),
    "compile": (f"{LIBRARIES}/torch/_inductor/compile_fx.py", 9, "compile_fx_inner"),
    "codecache": (f"{LIBRARIES}/torch/_inductor/codecache.py", 9, "load"),
    "load_inline": (f"{LIBRARIES}/torch/utils/cpp_extension.py", 2285, "load_inline"),
    "ninja": (f"{LIBRARIES}/torch/utils/cpp_extension.py", 2893, "_run_ninja_build"),
    "communicate": ("/usr/lib/python3.11/subprocess.py", 1196, "communicate"),
    "fetch": (f"{LIBRARIES}/torch/utils/data/dataloader.py", 9, "__next__"),
}


def doing(*windows):
    """What a process does of which these samples were taken, window by window."""
    sampled = [stacks(t, *counted(PLACES, window)) for t, window in enumerate(windows, 1)]
    return session_of(frames(*PLACES.values()), sampled).stacks[100].current_work


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        ("trainer, import, transformers", "importing transformers"),  # by the user's own line
        ("main, import, keras", "importing keras"),  # of a library, by its package
        ("main, keras, codecache", "importing keras"),  # of a stack that was shortened
        ("two, import, keras", "importing keras"),  # of several names the one whose code runs
        ("two, our import", "importing time, keras"),
        ("with torch, import, our import, torch", "importing torch"),
        ("with torch, import, our import", "importing sys, time, torch"),
        ("no text, our import", "importing modules"),
        ("of a package, import, keras", "importing keras"),  # a relative import
        ("own, import, models", "importing .models"),
        ("own, import, our import, torch", "importing torch"),
        ("command, import", "importing modules"),  # whose own line calls a library, which imports when it is called
        ("keras, load", "computing"),  # a program in a package
        ("main, compile", "compiling"),
        ("extension, load_inline, ninja, communicate", "compiling"),  # though other programs do it
        ("main, fetch, load", "preparing data"),
    ],
)
def test_what_a_set_up_does_is_named_by_the_code_that_runs(stack, words):
    assert doing({stack: 20}).words == words


def test_our_hooks_are_never_the_line_at_work():
    assert doing({"thread, our hook": 20}).place == Place("/usr/lib/python3.11/threading.py", 5, "run")


def test_a_function_of_the_user_with_its_hottest_line_and_since_when():
    own = [{"main, load": 12 - n, "main, append": 8 + n} for n in range(2)]
    place = Place("/home/me/prep.py", 40, "load", "for line in text:")
    assert doing({"trainer, import, transformers": 20}, *own) == ("computing", 1.0, place)
