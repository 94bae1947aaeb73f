"""Warnings that Python has noted in a process: which are read, and that nothing is changed."""

import sys
import types
import warnings

import pytest

from tuimon.agent.process import warned

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
    warned.forget()

    def run(*lines):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda *_, **__: None
            code = "\n".join(["import warnings", *lines])
            exec(compile(code, FILE, "exec"), made.__dict__)
        return made

    yield run
    warned.forget()


def test_a_warning_is_read_with_its_line(module):
    registry = dict(module("", "for _ in range(2): warnings.warn('slow' * 100)").__warningregistry__)
    filters = list(warnings.filters)
    assert warned.facts() == {"warnings": [[("slow" * 100)[:120], FILE, 3]]}
    assert (sys.modules["of_test"].__warningregistry__, warnings.filters) == (registry, filters)


@pytest.mark.parametrize("kind", ["DeprecationWarning", "FutureWarning", "ResourceWarning"])
def test_what_is_about_the_code_is_left_out(module, kind):
    module(f"warnings.warn('old', {kind})")
    assert warned.facts() == {}


def test_what_the_program_has_not_shown_is_not_noted(module):
    module("warnings.simplefilter('ignore')", "warnings.warn('hidden')")
    assert warned.facts() == {}


def test_it_is_kept_when_the_module_forgets_it(module):
    module("warnings.warn('first')")
    assert len(warned.facts()["warnings"]) == 1
    module("warnings.warn('second')")
    assert "first" not in {each[0] for each in sys.modules["of_test"].__warningregistry__ if each != "version"}
    assert [text for text, _, _ in warned.facts()["warnings"]] == ["first", "second"]


def test_of_many_the_first_are_read(module):
    module(*(f"warnings.warn('number {n}')" for n in range(30)))
    assert len(warned.facts()["warnings"]) == warned.WARNINGS_LIMIT


def test_whatever_stands_among_the_modules_is_left_alone(module, monkeypatch):
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            raise AssertionError("it would be loaded")

    for odd in (Lazy("odd"), None, object()):
        monkeypatch.setitem(sys.modules, "odd", odd)
        assert warned.facts() == {}
