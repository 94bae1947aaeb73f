"""The lines that a file's syntax shows to run without gradients; loads Python's parser: import it late."""

from __future__ import annotations

import ast
from typing import NamedTuple

from tuimon.sources.source_blocks import Block

#: The value with which each turns gradients off; what decides it only when it runs is not known.
_OFF = {"no_grad": True, "inference_mode": True, "set_grad_enabled": False}


class Span(NamedTuple):
    """Lines of a function, or of the body of a ``with`` statement, and the block that they belong to."""

    first: int
    last: int
    block: Block | None


def spans_of(module: ast.Module) -> list[Span]:
    """Those of all functions, also with gradients, and of the outermost such ``with`` statements within each."""
    spans: list[Span] = []
    waiting: list[tuple[ast.AST, Block | None]] = [(module, None)]  # nodes, and the block that each is in
    while waiting:  # no recursion: each ``elif`` is nested in the one before
        node, around = waiting.pop()
        for child in ast.iter_child_nodes(node):
            span = _span(child, around)
            if span is not None:
                spans.append(span)
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.append((child, around if span is None else span.block))
    return spans


def _span(node: ast.AST, around: Block | None) -> Span | None:
    """The span that a node begins; ``around``: the block that it is in."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            last = node.end_lineno or node.lineno
            decorators = node.decorator_list
            return Span(
                node.lineno, last, Block(decorators[0].lineno, last) if any(map(_turns_off, decorators)) else None
            )
        case ast.With() if around is None and any(_turns_off(item.context_expr) for item in node.items):
            block = Block(node.lineno, node.end_lineno or node.lineno)
            return Span(node.body[0].lineno, block.last, block)
    return None


def _turns_off(expression: ast.expr) -> bool:
    """True if it is ``torch.no_grad()`` or the like; as a decorator without its parentheses, too."""
    arguments: list[ast.expr] = []
    if isinstance(expression, ast.Call):
        arguments = [*expression.args, *(keyword.value for keyword in expression.keywords)]
        expression = expression.func
    name = expression.attr if isinstance(expression, ast.Attribute) else getattr(expression, "id", "")
    if name not in _OFF:
        return False
    values = [argument.value if isinstance(argument, ast.Constant) else None for argument in arguments]
    return values == [_OFF[name]] or (not values and name != "set_grad_enabled")
