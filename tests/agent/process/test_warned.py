"""Warnings that Python has noted in a process: which are read, and that nothing is changed."""

import sys
import types
import warnings

import pytest

from tuimon.agent.process import training_facts

FILE = "/me/of_test.py"


@pytest.fixture
def module(monkeypatch):
    """Runs lines in a module of a program, each of which warns as by default."""
    made = types.ModuleType("of_test")
    made.__file__ = FILE
    monkeypatch.setitem(sys.modules, "of_test", made)
    for each in list(sys.modules.values()):
        if getattr(each, "__warningregistry__", None):
            monkeypatch.delattr(each, "__warningregistry__")
    training_facts.forget()

    def run(*lines):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda *_, **__: None
            code = "\n".join(["import warnings", *lines])
            exec(compile(code, FILE, "exec"), made.__dict__)
        return made

    yield run
    training_facts.forget()


SHAPES, ARRAYS = "Using a target size (4) that is not (4, 1)", "Creating a tensor from a list of numpy.ndarrays is slow"


def test_a_warning_is_read_with_its_line(module):
    registry = dict(
        module("", f"for _ in range(2): warnings.warn('{SHAPES}')", f"warnings.warn('{SHAPES}')").__warningregistry__
    )
    filters = list(warnings.filters)
    assert training_facts.warning_facts() == {"warnings": [["Using a target size", FILE, 3]]}
    assert (sys.modules["of_test"].__warningregistry__, warnings.filters) == (registry, filters)


def test_of_others_nothing_is_read(module):
    module("warnings.warn('the key is 1234')")
    assert training_facts.warning_facts() == {}


def test_what_the_program_has_not_shown_is_not_noted(module):
    module("warnings.simplefilter('ignore')", f"warnings.warn('{SHAPES}')")
    assert training_facts.warning_facts() == {}


def test_it_is_kept_when_the_module_forgets_it(module):
    module(f"warnings.warn('{SHAPES}')")
    assert len(training_facts.warning_facts()["warnings"]) == 1
    module(f"warnings.warn('{ARRAYS}')")
    assert SHAPES not in {each[0] for each in sys.modules["of_test"].__warningregistry__ if each != "version"}
    found = [text for text, _, _ in training_facts.warning_facts()["warnings"]]
    assert found == list(training_facts.KNOWN_WARNINGS[:2])


def test_whatever_stands_among_the_modules_is_left_alone(module, monkeypatch):
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            raise AssertionError("it would be loaded")

    for odd in (Lazy("odd"), None, object()):
        monkeypatch.setitem(sys.modules, "odd", odd)
        assert training_facts.warning_facts() == {}
