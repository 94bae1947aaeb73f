"""Lines of a training that keep, step after step, what has a graph, figures, hooks, or other objects.

This loads Python's parser: import it late.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tuimon.records import KeepingLine, Kept
from tuimon.sources.source_blocks import parsed
from tuimon.sources.source_text import SOURCE_CHARS
from tuimon.sources.stacks.frames.assignments import assigned, called, dotted, is_renewed
from tuimon.sources.stacks.frames.kept_objects import FUNCTIONS, KEEPERS, InLoop, KeptObjects
from tuimon.text import plain

#: Most lines that are reported of a file.
_LIMIT = 4
_FIGURES = frozenset({"figure", "subplots"})
_HOOKS = frozenset(
    f"register_{name}hook" for name in ("forward_", "forward_pre_", "full_backward_", "full_backward_pre_")
)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
#: Methods of a tensor that give something without a graph.
_CUTTING = frozenset(
    {
        "item",
        "detach",
        "tolist",
        "numpy",
        "argmax",
        "argmin",
        "size",
        "dim",
        "numel",
        "eq",
        "ne",
        "gt",
        "ge",
        "lt",
        "le",
    }
    | {"backward", "type", "tensor", "as_tensor"}
)
_NO_GRADIENTS = frozenset({"no_grad", "inference_mode"})


class _Found(NamedTuple):
    kept: Kept
    line: int
    function: str


def keeping_lines(lines: Sequence[bytes]) -> list[KeepingLine]:
    """Those of a file, by its lines; what has a graph, figures and hooks come first.

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
        tree = parsed(text)
        program = _Program(tree)
        found = {*program.keeping(closes=b"close(" in text, removes=b".remove(" in text)}
        known = {each.line for each in found}
        objects = KeptObjects(tree).keeping(program.in_loops(), program.step_loops())
        found |= {_Found("object", line, function) for line, function in objects if line not in known}
    except RecursionError:  # a sum of a thousand terms
        return []
    rows = sorted(found, key=lambda each: (each.kept == "object", each.line))
    return [KeepingLine(line, function, _text(lines[line - 1]), kept) for kept, line, function in rows[:_LIMIT]]


class _Program:
    """The names of a file that stand for what has a graph, and the statements of its loops."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        attributes = [(call, call.func) for call in calls if isinstance(call.func, ast.Attribute)]
        assigns = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        #: what has parameters, and losses of torch's: a call of it gives what has a graph
        self._modules = {dotted(func.value) for _, func in attributes if func.attr == "parameters"} - {""}
        self._losses = {
            dotted(target)
            for each in assigns
            if isinstance(each.value, ast.Call) and dotted(each.value.func).startswith(("nn.", "torch.nn."))
            for target in each.targets
        }
        self._graphs: set[str] = set()
        for call, func in attributes:
            if func.attr == "backward":
                self._graphs |= self._values([func.value, *call.args])
        functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
        #: functions that return what has a graph, and those that make steps
        self._returning = {each.name for each in functions if self._returns_graph(each)}
        self._stepping = {"backward"}
        self._stepping |= {each.name for each in functions if self.makes_steps(each)}
        for _ in range(2):  # y = model(x), then z = y.mean()
            for assign in assigns:
                if isinstance(assign.value, ast.Call) and self._has_graph(assign.value):
                    self._graphs |= {target.id for target in assign.targets if isinstance(target, ast.Name)}
        self._bounded = {
            dotted(target)
            for assign in assigns
            if isinstance(assign.value, ast.Call)
            for target in assign.targets
            if any(keyword.arg == "maxlen" for keyword in assign.value.keywords)
        }

    def keeping(self, *, closes: bool, removes: bool) -> Iterator[_Found]:
        """The statements that keep, with the function that each is in.

        ``closes``: the file closes figures; ``removes``: it may remove hooks.
        """
        for statement, function, loops in self.in_loops():
            if not closes and any(_opens_figure(node) for node in ast.walk(statement)):
                yield _Found("figure", statement.lineno, function)
            loop = next((loop for loop in reversed(loops) if self.makes_steps(loop)), loops[-1])
            if not removes and self.is_each_step(loop) and any(_adds_hook(node) for node in ast.walk(statement)):
                yield _Found("hook", statement.lineno, function)
            kept = self._kept_by(statement, loop)
            if kept and kept not in self._bounded and not is_renewed(kept, loop):
                yield _Found("graph", statement.lineno, function)

    def in_loops(self) -> Iterator[InLoop]:
        """Simple statements in loops, with their function and the loops around them, the outermost first.

        Without those that run without gradients.
        """
        return self._in_loops(self._tree, "<module>", ())

    def _in_loops(self, node: ast.AST, function: str, loops: tuple[ast.AST, ...]) -> Iterator[InLoop]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                if not any(map(_is_no_grad, child.decorator_list)):
                    yield from self._in_loops(child, child.name, ())
            elif isinstance(child, (ast.With, ast.AsyncWith)):
                if not any(_is_no_grad(item.context_expr) for item in child.items):
                    yield from self._in_loops(child, function, loops)
            elif isinstance(child, _LOOPS):
                yield from self._in_loops(child, function, (*loops, child))
            elif loops and isinstance(child, (ast.Expr, ast.Assign, ast.AugAssign)):
                yield child, function, loops
            elif isinstance(child, (ast.stmt, ast.ExceptHandler)):
                yield from self._in_loops(child, function, loops)

    def makes_steps(self, node: ast.AST) -> bool:
        """True if it calls backward, or a function of the file that does."""
        return bool(called(node) & self._stepping)

    def step_loops(self) -> list[ast.AST]:
        """The loops whose turns are steps."""
        return [node for node in ast.walk(self._tree) if isinstance(node, _LOOPS) and self.is_each_step(node)]

    def is_each_step(self, loop: ast.AST) -> bool:
        """True if a turn of a loop is a step, and not an epoch."""
        inner = (node for node in ast.walk(loop) if isinstance(node, _LOOPS) and node is not loop)
        return self.makes_steps(loop) and not any(map(self.makes_steps, inner))

    def _kept_by(self, statement: ast.stmt, loop: ast.AST) -> str:
        """The keeper of something with a graph from now on, one more in each turn of a loop; empty if there is none."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=keeper, attr=attr), args=args)) if attr in KEEPERS:
                return dotted(keeper) if any(map(self._has_graph, args)) else ""
            case ast.AugAssign(target=target, op=ast.Add(), value=value):
                return dotted(target) if self._has_graph(value) else ""
            case ast.Assign(targets=[ast.Subscript(value=keeper, slice=key)], value=value):
                is_new = bool(self._values([key]) & assigned(loop))
                return dotted(keeper) if is_new and self._has_graph(value) else ""
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Add()) as value):
                return name if name in self._values([value]) and self._has_graph(value) else ""
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
            case ast.Call(func=func, args=args):
                called = dotted(func)
                if called in self._modules or called.rpartition(".")[2] in self._returning:
                    return True
                if called in self._losses or called.startswith(("F.", "torch.")):
                    return called.rpartition(".")[2] not in _CUTTING and any(map(self._has_graph, args))
                return isinstance(func, ast.Attribute) and func.attr not in _CUTTING and self._has_graph(func.value)
        return False

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


def _is_no_grad(node: ast.expr) -> bool:
    return dotted(getattr(node, "func", node)).rpartition(".")[2] in _NO_GRADIENTS


def _opens_figure(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _FIGURES
        and dotted(node.func.value) in ("plt", "pyplot", "matplotlib.pyplot")
    )


def _adds_hook(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _HOOKS


def _text(line: bytes) -> str:
    return plain(line[:SOURCE_CHARS].decode("utf-8", "replace")).strip()
