"""Which of the calls on one line comes first: what is passed to the model was made before the forward pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tuimon.line_syntax import parsed_line

#: How many lines the answers are remembered for: a training has a few that run its model.
_LINES_HELD = 256
#: Whose functions run no module of the program's.
_LIBRARIES = frozenset({"F", "functional", "math", "nn", "np", "numpy", "random", "torch"})
#: Calls that only change how values are held.
_CONVERSION = re.compile(
    r"(?:bool|clone|contiguous|cpu|cuda|detach|dict|double|enumerate|flatten|float|half|int|items|keys|len|list|long"
    r"|numpy|permute|range|reshape|reversed|size|squeeze|to|transpose|tuple|type|unsqueeze|values|view|zip)$"
)
#: Names of functions that take the model's output and are not modules of torch's.
_LOSS = re.compile(r"(?i)loss|criteri|cost|objective|entropy|metric|score|(?:^|_)(?:mse|bce|nll|kl|mae)")
#: Names of objects that are called as functions and are the model.
_MODEL = re.compile(
    r"(?i)model|net|module|encoder|decoder|backbone|generator|discriminator|critic|actor|policy|agent|student|transformer"
)


class _Call(NamedTuple):
    name: str  # of the function or method; "" where it has none
    takers: tuple[str, ...]  # names of the calls that it is an argument of, inner ones first


@lru_cache(_LINES_HELD)
def is_made_for_model(source: str, function: str) -> bool:
    """True if this function's result is passed to another call of the line, before anything else can be the model.

    In ``loss = cost(model(augment(x)), y)`` that is ``augment``, but neither ``model`` nor ``cost``. The line does not
    name a function ``__call__``: then what takes its result must be named as models are.
    """
    first = next((call for call in _calls(source) if not _CONVERSION.match(call.name)), None)
    taker = next((name for name in first.takers if not _LOSS.search(name)), None) if first is not None else None
    if first is None or taker is None:
        return False
    if function == "__call__":
        return _MODEL.search(taker) is not None and _MODEL.search(first.name) is None
    return first.name == function


def _calls(source: str) -> list[_Call]:
    """The calls of a line of the user's in the order of evaluation, without those of libraries."""
    tree = parsed_line(source)
    return list(_in_order(tree, ())) if tree is not None else []


def _in_order(node: ast.AST, takers: tuple[str, ...]) -> Iterator[_Call]:
    if isinstance(node, ast.Lambda):  # runs later
        return
    if not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from _in_order(child, takers)
        return
    name, counts = _name(node.func), not _is_library(node.func)
    inside = (name, *takers) if counts and not _CONVERSION.match(name) else takers
    yield from _in_order(node.func, takers)
    for argument in (*node.args, *node.keywords):
        yield from _in_order(argument, inside)
    if counts:
        yield _Call(name, takers)


def _name(function: ast.AST) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _is_library(function: ast.AST) -> bool:
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and function.id in _LIBRARIES
