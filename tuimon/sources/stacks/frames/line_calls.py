"""Whose functions a line calls, and whether torch may be at work on it, too; loads Python's parser: import it late."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tuimon.line_syntax import parsed_line

#: Calls that turn a tensor into something else, and cost little if no GPU makes anybody wait.
_CONVERSIONS = re.compile(r"cpu|detach|item|numpy|size|tolist")
#: Names that Python itself knows and that compute nothing.
_BUILTINS = re.compile(r"bool|dict|enumerate|float|int|len|list|print|range|set|str|tuple|zip")


def packages_called(text: str, imports: Mapping[str, str]) -> set[str] | None:
    """The packages that a line calls; None where something on it may be an operation of torch or of anybody's.

    ``imports``: package by the name that stands for it in the line's file.
    """
    statement = parsed_line(text)
    found = {_package(call, imports) for call in _calls(statement)} if statement is not None else {None}
    known = {package for package in found if package is not None}
    return known - {""} if len(known) == len(found) else None


def _calls(statement: ast.Module) -> Iterator[ast.Call | None]:
    """The calls of a statement; None for what may be an operation of torch without one: ``a @ b``, ``scale * x``."""
    for node in ast.walk(statement):
        match node:
            case ast.Call():
                yield node
            case ast.BinOp(left, _, right) | ast.AugAssign(left, _, right):
                yield from _operations(left, right)
            case ast.Compare(left, _, others):
                yield from _operations(left, *others)
            case ast.UnaryOp(_, operand):
                yield from _operations(operand)


def _operations(*operands: ast.expr) -> Iterator[None]:
    yield from (None for operand in operands if not isinstance(operand, ast.Constant | ast.Call))


def _package(call: ast.Call | None, imports: Mapping[str, str]) -> str | None:
    """The package that a call is into; "" for one that costs nothing, None where nobody knows."""
    if call is None:
        return None
    at = function = call.func
    while isinstance(at, ast.Attribute):
        at = at.value
    name = at.id if isinstance(at, ast.Name) else ""
    if name in imports:
        return imports[name]
    if isinstance(function, ast.Attribute):
        costs_nothing = _CONVERSIONS.fullmatch(function.attr)
    else:
        costs_nothing = _BUILTINS.fullmatch(name)
    return "" if costs_nothing else None
