"""Statements that put one object more, each step, into a container that nothing empties."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from tuimon.sources.stacks.frames.assignments import assigned_in, called, dotted, emptied_by, is_renewed

#: A statement of a loop, its function, and the loops around it, the outermost first.
InLoop = tuple[ast.stmt, str, tuple[ast.AST, ...]]
KEEPERS = frozenset({"append", "appendleft", "add", "extend", "insert"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAPPINGS = frozenset({"dict", "defaultdict", "OrderedDict"})
_CONTAINERS = frozenset({"list", "set", "deque"}) | _MAPPINGS
#: Calls that give a number, or a text.
_PLAIN = frozenset(
    {"item", "float", "int", "len", "str", "round", "bool", "time", "perf_counter", "monotonic", "format"}
)
#: Methods that are called each step, by torch or by Python.
_EACH_STEP = frozenset({"__getitem__", "__getitems__", "__call__", "__next__", "__iter__", "forward"})


class KeptObjects:
    """Finds them in the loops that make steps, in functions that these call, and in methods that another file may call.

    Of the last ones the container must be one of the object's own.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._made: dict[str, list[ast.expr]] = {}  # by name, what is assigned to it anywhere
        for target, value in _assignments(tree):
            self._made.setdefault(dotted(target), []).append(value)
        self._emptied = {name for node in ast.walk(tree) for name in emptied_by(node)}
        self._functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]

    def keeping(self, statements: Iterable[InLoop], loops: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
        """Line and function of each; ``statements`` of all loops, and the ``loops`` whose turns are steps."""
        for statement, function, around in statements:
            keeper = self._keeper(statement) if around[-1] in loops else ""
            if keeper and not any(is_renewed(keeper, loop) for loop in around):
                yield statement.lineno, function
        for each in self._each_step(loops):
            for node in (node for node in ast.walk(each) if isinstance(node, ast.stmt)):
                keeper = self._keeper(node)
                if keeper and not is_renewed(keeper, each) and (loops or keeper.startswith("self.")):
                    yield node.lineno, each.name

    def _each_step(self, loops: Sequence[ast.AST]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions that run each step: those that the loops call, and those that torch or Python does.

        A file without such a loop is used by another one: then any function may be one that no constructor calls.
        """
        if loops:
            names = self._reached(loops) | _EACH_STEP
            return [each for each in self._functions if each.name in names]
        once = self._reached([each for each in self._functions if each.name == "__init__"]) | {"__init__"}
        return [each for each in self._functions if each.name not in once]

    def _reached(self, nodes: Sequence[ast.AST]) -> set[str]:
        """The names of what is called there, and in the functions of the file that have such a name."""
        names: set[str] = set()
        waiting = list(nodes)
        while waiting:
            new = called(waiting.pop()) - names
            names |= new
            waiting += (each for each in self._functions if each.name in new)
        return names

    def _keeper(self, statement: ast.stmt) -> str:
        """The container that a statement adds an object to; empty if there is none, or something empties it."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=keeper, attr=attr), args=[*_, value])):
                is_kept = attr in KEEPERS
            case ast.Assign(targets=[ast.Subscript(value=keeper, slice=key), *_], value=value):
                is_kept = self._is_made(dotted(keeper), _MAPPINGS) and not isinstance(key, ast.Constant)
            case _:
                return ""
        name = dotted(keeper)
        is_filled = is_kept and name not in self._emptied and self._is_made(name, _CONTAINERS)
        return name if is_filled and not self._is_plain(value) else ""

    def _is_made(self, name: str, kinds: frozenset[str]) -> bool:
        """True if the one thing that is ever assigned to a name is a new container of these kinds, without a bound."""
        match self._made.get(name, []):
            case [ast.List(elts=[])]:
                return "list" in kinds
            case [ast.Dict(keys=[])]:
                return True
            case [ast.Call(func=func, keywords=keywords)]:
                is_bounded = any(keyword.arg == "maxlen" for keyword in keywords)
                return dotted(func).rpartition(".")[2] in kinds and not is_bounded
        return False

    def _is_plain(self, value: ast.expr, depth: int = 3) -> bool:
        """True of a number or a text, or some of them."""
        match value:
            case ast.Constant() | ast.JoinedStr():
                return True
            case ast.Name(id=name) if depth and name in self._made:
                return all(self._is_plain(each, depth - 1) for each in self._made[name])
            case ast.BinOp(left=left, right=right):
                return self._is_plain(left, depth) and self._is_plain(right, depth)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                return all(self._is_plain(part, depth) for part in parts)
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
                return name in _PLAIN
        return False


def _assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values; counters of loops are numbers."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign():
                yield from assigned_in(node)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                yield target, value
            case (
                ast.For(target=ast.Name() as target, iter=ast.Call(func=ast.Name(id="range")))
                | ast.For(target=ast.Tuple(elts=[target, *_]), iter=ast.Call(func=ast.Name(id="enumerate")))
            ):
                yield target, ast.Constant(0)
