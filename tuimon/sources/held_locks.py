"""Which lines of a file run while a lock is held by ``lock.acquire()``, without a ``with`` block."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Held(NamedTuple):
    """Lines of one statement, counted from 1, and the locks that are held there: ``self.lock``."""

    first: int
    last: int
    locks: tuple[str, ...]


_Block = Sequence[ast.stmt]
_Locks = tuple[str, ...]


def held_lines(tree: ast.Module) -> list[Held]:
    """The statements between an ``acquire()`` and the ``release()`` after it, function by function.

    A lock that only another function releases may be handed on, or be a semaphore that counts: it is left out.
    """
    blocks: list[_Block] = [tree.body]
    blocks += [node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    released_in = [{name for stmt in block for name in _called(stmt, "release")} for block in blocks]
    released = set().union(*released_in)
    found: list[Held] = []
    for block, here in zip(blocks, released_in, strict=True):
        walk = _Walk(released - here)
        walk.through(block, ())
        found += walk.found
    return found


class _Walk:
    """One way through a function: what is held at each statement."""

    def __init__(self, left_out: set[str]) -> None:
        self.found: list[Held] = []
        self._left_out = left_out
        self._acquired_at: dict[str, int] = {}  # line

    def through(self, block: _Block, locks: _Locks) -> _Locks | None:
        """What is held after a block; None where it does not end: it returns, raises, or leaves its loop."""
        for stmt in block:
            after = self._statement(stmt, locks)
            if after is None:
                return None
            locks = after
        return locks

    def _statement(self, stmt: ast.stmt, locks: _Locks) -> _Locks | None:
        match stmt:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return locks  # runs at another time
            case ast.If():
                return self._branches(stmt, locks)
            case ast.For() | ast.AsyncFor() | ast.While() | ast.With() | ast.AsyncWith() | ast.Match():
                return self._inner(stmt, locks)
            case ast.Try():
                return self._attempt(stmt, locks)
        self._note(stmt.lineno, stmt.end_lineno, locks)
        if isinstance(stmt, ast.Return | ast.Raise | ast.Break | ast.Continue):
            return None
        return self._after(stmt, locks)

    def _branches(self, stmt: ast.If, locks: _Locks) -> _Locks | None:
        """``if lock.acquire(False):`` holds it in its body, ``if not lock.acquire(False):`` in what follows."""
        self._note(stmt.test.lineno, stmt.test.end_lineno, locks)
        got = self._after(stmt.test, locks)
        is_not = isinstance(stmt.test, ast.UnaryOp) and isinstance(stmt.test.op, ast.Not)
        ends = (
            self.through(stmt.body, locks if is_not else got),
            self.through(stmt.orelse, got if is_not else locks),
        )
        known = [end for end in ends if end is not None]
        return _common(known) if known else None

    def _inner(self, stmt: ast.stmt, locks: _Locks) -> _Locks:
        bodies = [case.body for case in stmt.cases] if isinstance(stmt, ast.Match) else [getattr(stmt, "body", [])]
        bodies.append(getattr(stmt, "orelse", []))
        self._note(stmt.lineno, bodies[0][0].lineno - 1 if bodies[0] else stmt.lineno, locks)
        ends = [end for body in bodies if body and (end := self.through(body, locks)) is not None]
        return _common(ends) if ends else locks

    def _attempt(self, stmt: ast.Try, locks: _Locks) -> _Locks | None:
        after = self.through(stmt.body, locks)
        after = self.through(stmt.orelse, after) if after is not None else None
        ends = [after, *(self.through(handler.body, locks) for handler in stmt.handlers)]
        known = [end for end in ends if end is not None]
        at_last = self.through(stmt.finalbody, after if after is not None else self._after(stmt.body, locks))
        if not known or at_last is None:
            return None
        return at_last if stmt.finalbody else _common(known)

    def _after(self, nodes: ast.AST | _Block, locks: _Locks) -> _Locks:
        """What is held once these have run."""
        for node in [nodes] if isinstance(nodes, ast.AST) else nodes:
            released = set(_called(node, "release"))
            locks = tuple(name for name in locks if name not in released)
            for name in _called(node, "acquire"):
                if name not in (*locks, *released, *self._left_out):
                    self._acquired_at[name] = getattr(node, "end_lineno", None) or 0
                    locks = (*locks, name)
        return locks

    def _note(self, first: int, last: int | None, locks: _Locks) -> None:
        """On the line of an ``acquire()`` itself a thread may as well wait for it."""
        held = tuple(name for name in locks if self._acquired_at[name] < first)
        if held:
            self.found.append(Held(first, last or first, held))


def _common(ends: Sequence[_Locks]) -> _Locks:
    """What is held whichever way was taken."""
    return tuple(name for name in ends[0] if all(name in end for end in ends))


def _called(node: ast.AST, method: str) -> Iterator[str]:
    """What a method is called of in a statement or expression: ``self.lock``."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == method:
            yield ast.unparse(part.func.value)
