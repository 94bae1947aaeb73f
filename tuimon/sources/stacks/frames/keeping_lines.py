"""Lines in the loops of a training that keep, step after step, what has a graph; or open figures and close none.

This loads Python's parser: import it late.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tuimon.records import KeepingLine
from tuimon.sources.source_blocks import parsed
from tuimon.sources.source_text import SOURCE_CHARS
from tuimon.text import plain

#: Most lines that are reported of a file.
_LIMIT = 4
_KEEPERS = frozenset({"append", "appendleft", "add", "extend", "insert"})
_FIGURES = frozenset({"figure", "subplots"})


def keeping_lines(lines: Sequence[bytes]) -> list[KeepingLine]:
    """Those of a file, by its lines.

    In this code they are 5 and 6, but not 7::

        1  losses, total, seen = [], 0.0, []
        2  for x, y in loader:
        3      loss = criterion(model(x), y)
        4      loss.backward()
        5      losses.append(loss)
        6      total += loss
        7      seen.append(loss.item())
    """
    text = b"\n".join(lines)
    try:
        found = _Program(parsed(text)).keeping(figures=b"close(" not in text)
        rows = sorted({(node.lineno, function) for node, function in found})
    except RecursionError:  # a sum of a thousand terms
        return []
    return [KeepingLine(number, function, _text(lines[number - 1])) for number, function in rows[:_LIMIT]]


class _Program:
    """The names of a file that stand for what has a graph, and the statements of its loops."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        attributes = [(call, call.func) for call in calls if isinstance(call.func, ast.Attribute)]
        #: what has parameters: a call of it gives what has a graph
        self._modules = {_dotted(func.value) for _, func in attributes if func.attr == "parameters"} - {""}
        self._graphs: set[str] = set()
        for call, func in attributes:
            if func.attr == "backward":
                self._graphs |= self._values([func.value, *call.args])
        functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        #: functions that return what has a graph, and those that make steps
        self._returning = {each.name for each in functions if self._returns_graph(each)}
        self._stepping = {"backward"}
        self._stepping |= {each.name for each in functions if self._makes_steps(each)}
        for assign in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
            if self._is_call_with_graph(assign.value):
                self._graphs |= {target.id for target in assign.targets if isinstance(target, ast.Name)}
        self._bounded = {
            _dotted(target)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if any(keyword.arg == "maxlen" for keyword in node.value.keywords)
        }

    def keeping(self, *, figures: bool) -> Iterator[tuple[ast.stmt, str]]:
        """The statements that keep, with the function that each is in."""
        for statement, function, loops in self._in_loops(self._tree, "<module>", ()):
            if figures and any(_opens_figure(node) for node in ast.walk(statement)):
                yield statement, function
            loop = next((loop for loop in reversed(loops) if self._makes_steps(loop)), loops[-1])
            kept = self._kept_by(statement, loop)
            if kept and kept not in self._bounded and not _is_renewed(kept, loop):
                yield statement, function

    def _in_loops(
        self, node: ast.AST, function: str, loops: tuple[ast.AST, ...]
    ) -> Iterator[tuple[ast.stmt, str, tuple[ast.AST, ...]]]:
        """Simple statements in loops, with their function and the loops around them, the outermost first."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from self._in_loops(child, child.name, ())
            elif isinstance(child, (ast.For, ast.AsyncFor, ast.While)):
                yield from self._in_loops(child, function, (*loops, child))
            elif loops and isinstance(child, (ast.Expr, ast.Assign, ast.AugAssign)):
                yield child, function, loops
            elif isinstance(child, (ast.stmt, ast.ExceptHandler)):
                yield from self._in_loops(child, function, loops)

    def _kept_by(self, statement: ast.stmt, loop: ast.AST) -> str:
        """The keeper of something with a graph from now on, one more in each turn of a loop; empty if there is none."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=keeper, attr=attr), args=args)) if attr in _KEEPERS:
                return _dotted(keeper) if any(map(self._has_graph, args)) else ""
            case ast.AugAssign(target=target, op=ast.Add(), value=value):
                return _dotted(target) if self._has_graph(value) else ""
            case ast.Assign(targets=[ast.Subscript(value=keeper, slice=key)], value=value):
                is_new = bool(self._values([key]) & _assigned(loop))
                return _dotted(keeper) if is_new and self._has_graph(value) else ""
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.BinOp(left=ast.Name(id=left), op=ast.Add(), right=right)
            ):
                return name if name == left and self._has_graph(right) else ""
        return ""

    def _has_graph(self, value: ast.expr) -> bool:
        """True if a value is, or holds, what has a graph; not a number of it, nor what is detached."""
        match value:
            case ast.Name(id=name):
                return name in self._graphs
            case ast.BinOp(left=left, right=right):
                return self._has_graph(left) or self._has_graph(right)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                return any(map(self._has_graph, parts))
            case ast.Call():
                return self._is_call_with_graph(value)
        return False

    def _is_call_with_graph(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call):
            return False
        called = _dotted(value.func)
        return called in self._modules or called.rpartition(".")[2] in self._returning

    def _values(self, nodes: Sequence[ast.expr]) -> set[str]:
        """The names of variables in expressions, but for those that are called."""
        found: set[str] = set()
        for node in nodes:
            match node:
                case ast.Name(id=name):
                    found.add(name)
                case ast.Call(args=args):
                    found |= self._values(args)
                case ast.BinOp(left=left, right=right):
                    found |= self._values([left, right])
        return found

    def _returns_graph(self, function: ast.AST) -> bool:
        returned = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
        return any(isinstance(value, ast.Name) and value.id in self._graphs for value in returned)

    def _makes_steps(self, node: ast.AST) -> bool:
        """True if it calls backward, or a function of the file that does."""
        called = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
        names = {str(getattr(func, "attr", None) or getattr(func, "id", "")) for func in called}
        return bool(names & self._stepping)


def _is_renewed(keeper: str, loop: ast.AST) -> bool:
    """True if what keeps begins anew, or is emptied, in each turn of a loop."""
    for node in ast.walk(loop):
        match node:
            case ast.Assign(targets=targets, value=value) if not isinstance(value, ast.BinOp):
                names = {_dotted(part) for target in targets for part in getattr(target, "elts", [target])}
                if keeper in names:
                    return True
            case ast.Call(func=ast.Attribute(value=emptied, attr="clear" | "pop" | "popleft")):
                if _dotted(emptied) == keeper:
                    return True
            case ast.Delete(targets=targets):
                if any(_dotted(getattr(target, "value", target)) == keeper for target in targets):
                    return True
    return False


def _assigned(loop: ast.AST) -> set[str]:
    """The variables that a loop assigns."""
    return {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _opens_figure(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _FIGURES
        and _dotted(node.func.value) in ("plt", "pyplot", "matplotlib.pyplot")
    )


def _dotted(node: ast.AST) -> str:
    """``self.losses`` of such an expression; empty of any other."""
    name, value = getattr(node, "attr", None), getattr(node, "value", None)
    if isinstance(name, str) and value is not None:
        base = _dotted(value)
        return f"{base}.{name}" if base else ""
    return str(getattr(node, "id", ""))


def _text(line: bytes) -> str:
    return plain(line[:SOURCE_CHARS].decode("utf-8", "replace")).strip()
