"""The programs' labels; the programs themselves need their frameworks and run in ``make wild``."""

from __future__ import annotations

import ast

import pytest

from tests.wild.catalogue import HEALTHY, catalogue
from tuimon.diagnosis.rulebook import CAUSES, RULE_NAMES

PROGRAMS = catalogue()


def test_there_are_many_on_many_frameworks() -> None:
    assert len(PROGRAMS) >= 128
    assert len({program.package for program in PROGRAMS.values()}) >= 45
    assert sum(name.endswith(HEALTHY) for name in PROGRAMS) * 2 == len(PROGRAMS)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.endswith(HEALTHY)])
def test_labels_are_names_of_rules_and_of_lines_that_exist(name: str) -> None:
    program = PROGRAMS[name]
    text = program.path.read_text()
    tree = ast.parse(text)
    assert program.rule in RULE_NAMES
    assert program.cause is None or program.cause in CAUSES
    assert program.lines
    assert any(isinstance(node, ast.Name) and node.id == "PLANTED" for node in ast.walk(tree))
