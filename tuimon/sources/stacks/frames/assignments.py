"""What the statements of a program assign, call and empty: names as they are written, such as ``self.losses``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_EMPTYING = frozenset({"clear", "pop", "popleft", "popitem", "remove"})


def dotted(node: ast.AST) -> str:
    """``self.losses`` of such an expression; empty of any other."""
    name, value = getattr(node, "attr", None), getattr(node, "value", None)
    if isinstance(name, str) and value is not None:
        base = dotted(value)
        return f"{base}.{name}" if base else ""
    return str(getattr(node, "id", ""))


def called(node: ast.AST) -> set[str]:
    """The last names of what is called in it."""
    called = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
    return {str(getattr(func, "attr", None) or getattr(func, "id", "")) for func in called}


def assigned(loop: ast.AST) -> set[str]:
    """The variables that a loop assigns."""
    return {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def assigned_in(assign: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and their values, also those of ``a, b = [], 0``."""
    for target in assign.targets:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        values = assign.value.elts if isinstance(assign.value, ast.Tuple) else []
        yield from zip(parts, values if len(values) == len(parts) else [assign.value] * len(parts), strict=True)


def emptied_by(node: ast.AST) -> Iterator[str]:
    """The containers that a node takes something out of."""
    match node:
        case ast.Call(func=ast.Attribute(value=emptied, attr=attr)) if attr in _EMPTYING:
            yield dotted(emptied)
        case ast.Delete(targets=targets):
            yield from (dotted(getattr(target, "value", target)) for target in targets)
        case ast.Assign(targets=targets):  # x[:] = ...
            yield from (
                dotted(t.value) for t in targets if isinstance(t, ast.Subscript) and isinstance(t.slice, ast.Slice)
            )


def is_renewed(keeper: str, loop: ast.AST) -> bool:
    """True if what keeps begins anew, or is emptied, in each turn of a loop."""
    for node in ast.walk(loop):
        if keeper in emptied_by(node):
            return True
        if isinstance(node, ast.Assign) and any(
            dotted(target) == keeper and not isinstance(value, ast.BinOp) for target, value in assigned_in(node)
        ):
            return True
    return False
