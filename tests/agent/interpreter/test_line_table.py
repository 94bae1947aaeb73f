"""Lines of instructions, held against those that Python itself gives."""

import argparse
import sys
import types

import pytest

from tuimon.agent.interpreter.line_table import LineTable

if sys.version_info < (3, 11):
    pytest.skip("tables of lines are others before Python 3.11", allow_module_level=True)


def codes_of(code):
    """A code object and those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def test_every_instruction_of_a_module_has_its_line():
    with open(argparse.__file__) as file:
        module = compile(file.read(), "argparse.py", "exec")
    seen = 0
    for code in codes_of(module):
        table = LineTable(code.co_linetable, code.co_firstlineno)
        for begin, end, line in code.co_lines():
            for unit in range(begin // 2, end // 2):
                assert table.line(unit) == (line or 0), (code.co_name, unit)
                seen += 1
    assert seen > 10_000


def test_large_moves_between_lines():
    source = "def f(a):\n    return (a +\n" + "\n" * 700 + "        g(\n" + "\n" * 5000 + "a))\n"
    (code,) = (each for each in codes_of(compile(source, "x", "exec")) if each.co_name == "f")
    table = LineTable(code.co_linetable, code.co_firstlineno)
    for begin, end, line in code.co_lines():
        assert {table.line(unit) for unit in range(begin // 2, end // 2)} == {line or 0}


@pytest.mark.parametrize("table", [b"\xf8", b"\xe8\x40\x40", b"\xf0\x01"])
def test_a_table_that_ends_too_early_is_none(table):
    if table == b"\xf8":
        assert LineTable(table, 7).line(0) == 0  # no line, and no more bytes
        return
    with pytest.raises(IndexError):
        LineTable(table, 7)
