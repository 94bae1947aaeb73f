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
    _note_spans(module, None, spans)
    return spans


def _note_spans(node: ast.AST, around: Block | None, spans: list[Span]) -> None:
    """Add the spans within a node; ``around``: the block that it is in."""
    for child in ast.iter_child_nodes(node):
        block = around
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                last = child.end_lineno or child.lineno
                decorators = child.decorator_list
                block = Block(decorators[0].lineno, last) if any(map(_turns_off, decorators)) else None
                spans.append(Span(child.lineno, last, block))
            case ast.With() if around is None and any(_turns_off(item.context_expr) for item in child.items):
                block = Block(child.lineno, child.end_lineno or child.lineno)
                spans.append(Span(child.body[0].lineno, block.last, block))
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            _note_spans(child, block, spans)


def _turns_off(expression: ast.expr) -> bool:
    """Whether it is ``torch.no_grad()`` or the like; as a decorator without its parentheses, too."""
    arguments: list[ast.expr] = []
    if isinstance(expression, ast.Call):
        arguments = [*expression.args, *(keyword.value for keyword in expression.keywords)]
        expression = expression.func
    name = expression.attr if isinstance(expression, ast.Attribute) else getattr(expression, "id", "")
    if name not in _OFF:
        return False
    values = [argument.value if isinstance(argument, ast.Constant) else None for argument in arguments]
    return values == [_OFF[name]] or (not values and name != "set_grad_enabled")
