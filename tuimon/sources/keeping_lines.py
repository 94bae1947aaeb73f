"""Finds lines of a training that keep one more object at each step: a tensor with its graph, a figure, a hook ..."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tuimon.line_syntax import last_name, turns_off_gradients
from tuimon.records import KeepingLine, Kept
from tuimon.sources.source_text import line_of

#: A statement of a loop, its function, and the loops around it, the outermost first.
_InLoop = tuple[ast.stmt, str, tuple[ast.AST, ...]]
_KEEPERS = frozenset({"append", "appendleft", "add", "extend", "insert"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAPPINGS = frozenset({"dict", "defaultdict", "OrderedDict"})
_CONTAINERS = frozenset({"list", "set", "deque"}) | _MAPPINGS
#: Calls that return a number or a text.
_PLAIN = frozenset(
    ("item", "float", "int", "len", "str", "round", "bool", "time", "perf_counter", "monotonic", "format")
)
#: Methods that are called each step, by torch or by Python.
_EACH_STEP = frozenset({"__getitem__", "__getitems__", "__call__", "__next__", "__iter__", "forward"})
_EMPTYING = frozenset({"clear", "pop", "popleft", "popitem", "remove"})
_FIGURES = frozenset({"figure", "subplots"})
_HOOKS = frozenset(
    f"register_{name}hook" for name in ("forward_", "forward_pre_", "full_backward_", "full_backward_pre_")
)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
#: Methods of a tensor whose result has no graph.
_CUTTING = frozenset((
    "item", "detach", "tolist", "numpy", "argmax", "argmin", "size", "dim", "numel", "eq", "ne", "gt", "ge", "lt", "le",
    "backward", "type", "tensor", "as_tensor",
))  # fmt: skip


def keeping_lines(tree: ast.Module, lines: Sequence[bytes]) -> list[KeepingLine]:
    """The keeping lines of a file, from its tree and lines; those that keep graphs, figures and hooks come first.

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
        program = _Program(tree, lines)
        found = {*program.keeping(closes=b"close(" in text, removes=b".remove(" in text)}
        known = {each.line for each in found}
        found |= {each for each in program.keeping_objects() if each.line not in known}
    except RecursionError:  # a sum of a thousand terms
        return []
    rows = sorted(found, key=lambda each: (each.kept == "object", each.line))
    return rows[:4]


class _Program:
    """A file's loops, and its names for tensors with a graph and for containers."""

    def __init__(self, tree: ast.Module, lines: Sequence[bytes]) -> None:
        self._tree, self._lines = tree, lines
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        attributes = [(call, call.func) for call in calls if isinstance(call.func, ast.Attribute)]
        assigns = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        #: objects with parameters, and torch's losses: calling one gives a tensor with a graph
        self._modules = {_dotted_name(func.value) for _, func in attributes if func.attr == "parameters"} - {""}
        self._made: dict[str, list[ast.expr]] = {}  # by name, what is assigned to it anywhere
        for target, value in _assignments(tree):
            self._made.setdefault(_dotted_name(target), []).append(value)
        called = {
            name: [each.func for each in values if isinstance(each, ast.Call)] for name, values in self._made.items()
        }
        torchs = ("nn.", "torch.nn.")
        self._losses = {
            name for name, of in called.items() if any(_dotted_name(each).startswith(torchs) for each in of)
        }
        self._emptied = {name for node in ast.walk(tree) for name in _emptied_containers(node)}
        self._graphs: set[str] = set()
        for call, func in attributes:
            if func.attr == "backward":
                self._graphs |= self._values([func.value, *call.args])
        self._functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
        #: functions that return what has a graph, and those that make steps
        self._returning = {each.name for each in self._functions if self._returns_graph(each)}
        self._stepping = {"backward"}
        self._stepping |= {each.name for each in self._functions if self._makes_steps(each)}
        for _ in range(2):  # y = model(x), then z = y.mean()
            for assign in assigns:
                if isinstance(assign.value, ast.Call) and self._has_graph(assign.value):
                    self._graphs |= {target.id for target in assign.targets if isinstance(target, ast.Name)}

    def keeping(self, *, closes: bool, removes: bool) -> Iterator[KeepingLine]:
        """The statements that keep, with the function that each is in.

        ``closes``: the file closes figures; ``removes``: it may remove hooks.
        """
        for statement, function, loops in self._in_loops(self._tree):
            if not closes and any(_opens_figure(node) for node in ast.walk(statement)):
                yield self._line("figure", statement, function)
            loop = next((loop for loop in reversed(loops) if self._makes_steps(loop)), loops[-1])
            if not removes and self._is_each_step(loop) and _called_functions(statement) & _HOOKS:
                yield self._line("hook", statement, function)
            kept = self._keeping_variable(statement, loop)
            if kept and not any(map(_is_bounded, self._made.get(kept, ()))) and not _is_renewed(kept, loop):
                yield self._line("graph", statement, function)

    def keeping_objects(self) -> Iterator[KeepingLine]:
        """The statements that add an object to a container which nothing empties.

        They are in loops that make steps, in functions that these call, or in methods that another file may call; the
        container of such a method must belong to its object.
        """
        loops = [node for node in ast.walk(self._tree) if isinstance(node, _LOOPS) and self._is_each_step(node)]
        for statement, function, around in self._in_loops(self._tree):
            keeper = self._keeper(statement) if around[-1] in loops else ""
            if keeper and not any(_is_renewed(keeper, loop) for loop in around):
                yield self._line("object", statement, function)
        for each in self._each_step(loops):
            for node in (node for node in ast.walk(each) if isinstance(node, ast.stmt)):
                keeper = self._keeper(node)
                if keeper and not _is_renewed(keeper, each) and (loops or keeper.startswith("self.")):
                    yield self._line("object", node, each.name)

    def _line(self, kept: Kept, statement: ast.stmt, function: str) -> KeepingLine:
        return KeepingLine(statement.lineno, function, line_of(self._lines, statement.lineno), kept)

    def _in_loops(
        self, node: ast.AST, function: str = "<module>", loops: tuple[ast.AST, ...] = ()
    ) -> Iterator[_InLoop]:
        """Simple statements in loops, with their function and the loops around them, the outermost first.

        Statements that run without gradients are left out.
        """
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FUNCTIONS):
                if not any(map(turns_off_gradients, child.decorator_list)):
                    yield from self._in_loops(child, child.name, ())
            elif isinstance(child, (ast.With, ast.AsyncWith)):
                if not any(turns_off_gradients(item.context_expr) for item in child.items):
                    yield from self._in_loops(child, function, loops)
            elif isinstance(child, _LOOPS):
                yield from self._in_loops(child, function, (*loops, child))
            elif loops and isinstance(child, (ast.Expr, ast.Assign, ast.AugAssign)):
                yield child, function, loops
            elif isinstance(child, (ast.stmt, ast.ExceptHandler)):
                yield from self._in_loops(child, function, loops)

    def _makes_steps(self, node: ast.AST) -> bool:
        """True if it calls backward, or a function of the file that does."""
        return bool(_called_functions(node) & self._stepping)

    def _is_each_step(self, loop: ast.AST) -> bool:
        """True if each iteration of a loop is a step, not an epoch."""
        inner = (node for node in ast.walk(loop) if isinstance(node, _LOOPS) and node is not loop)
        return self._makes_steps(loop) and not any(map(self._makes_steps, inner))

    def _keeping_variable(self, statement: ast.stmt, loop: ast.AST) -> str:
        """The variable in which a statement keeps one more tensor with a graph in each iteration; empty if none."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=keeper, attr=attr), args=args)) if attr in _KEEPERS:
                return _dotted_name(keeper) if any(map(self._has_graph, args)) else ""
            case ast.AugAssign(target=target, op=ast.Add(), value=value):
                return _dotted_name(target) if self._has_graph(value) else ""
            case ast.Assign(targets=[ast.Subscript(value=keeper, slice=key)], value=value):
                names = (node for node in ast.walk(loop) if isinstance(node, ast.Name))
                is_new = bool(self._values([key]) & {node.id for node in names if isinstance(node.ctx, ast.Store)})
                return _dotted_name(keeper) if is_new and self._has_graph(value) else ""
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Add()) as value):
                return name if name in self._values([value]) and self._has_graph(value) else ""
        return ""

    def _has_graph(self, value: ast.expr) -> bool:
        """True if a value is, or contains, a tensor with a graph; not if it is detached, or a number taken from it."""
        match value:
            case ast.Name(id=name):
                return name in self._graphs
            case ast.BinOp(left=left, right=right):
                return self._has_graph(left) or self._has_graph(right)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                return any(map(self._has_graph, parts))
            case ast.Call(func=func, args=args):
                called = _dotted_name(func)
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

    def _each_step(self, loops: Sequence[ast.AST]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions that run each step: those that the loops call, and those that torch or Python does.

        A file without such a loop is used by another file: then any function that no constructor calls may be one.
        """
        if loops:
            names = self._reached_functions(loops) | _EACH_STEP
            return [each for each in self._functions if each.name in names]
        once = self._reached_functions([each for each in self._functions if each.name == "__init__"]) | {"__init__"}
        return [each for each in self._functions if each.name not in once]

    def _reached_functions(self, nodes: Sequence[ast.AST]) -> set[str]:
        """The names called in these nodes, and in functions of the file that have such a name."""
        names: set[str] = set()
        waiting = list(nodes)
        while waiting:
            new = _called_functions(waiting.pop()) - names
            names |= new
            waiting += (each for each in self._functions if each.name in new)
        return names

    def _keeper(self, statement: ast.stmt) -> str:
        """The container to which a statement adds an object; empty if there is none, or if something empties it."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=keeper, attr=attr), args=[*_, value])):
                is_kept = attr in _KEEPERS
            case ast.Assign(targets=[ast.Subscript(value=keeper, slice=key), *_], value=value):
                is_kept = self._is_made(_dotted_name(keeper), _MAPPINGS) and not isinstance(key, ast.Constant)
            case _:
                return ""
        name = _dotted_name(keeper)
        is_filled = is_kept and name not in self._emptied and self._is_made(name, _CONTAINERS)
        return name if is_filled and not self._is_plain(value) else ""

    def _is_made(self, name: str, kinds: frozenset[str]) -> bool:
        """True if only a new container of these kinds, without a bound, is ever assigned to a name."""
        match self._made.get(name, []):
            case [ast.List(elts=[])]:
                return "list" in kinds
            case [ast.Dict(keys=[])]:
                return True
            case [ast.Call(func=func) as made]:
                return last_name(func) in kinds and not _is_bounded(made)
        return False

    def _is_plain(self, value: ast.expr, depth: int = 3) -> bool:
        """True if a value is a number, a text, or a collection of these."""
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


def _is_bounded(made: ast.expr) -> bool:
    return isinstance(made, ast.Call) and any(keyword.arg == "maxlen" for keyword in made.keywords)


def _opens_figure(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _FIGURES
        and _dotted_name(node.func.value) in ("plt", "pyplot", "matplotlib.pyplot")
    )


def _assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values; counters of loops are numbers."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign():
                yield from _target_values(node)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                yield target, value
            case (
                ast.For(target=ast.Name() as target, iter=ast.Call(func=ast.Name(id="range")))
                | ast.For(target=ast.Tuple(elts=[target, *_]), iter=ast.Call(func=ast.Name(id="enumerate")))
            ):
                yield target, ast.Constant(0)


def _dotted_name(node: ast.AST) -> str:
    """``self.losses`` for an expression of this form; empty for any other."""
    name, value = getattr(node, "attr", None), getattr(node, "value", None)
    if isinstance(name, str) and value is not None:
        base = _dotted_name(value)
        return f"{base}.{name}" if base else ""
    return str(getattr(node, "id", ""))


def _called_functions(node: ast.AST) -> set[str]:
    """The functions that a node calls, by the last part of their dotted names."""
    return {last_name(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}


def _target_values(assign: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and their values, also those of ``a, b = [], 0``."""
    for target in assign.targets:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        values = assign.value.elts if isinstance(assign.value, ast.Tuple) else []
        yield from zip(parts, values if len(values) == len(parts) else [assign.value] * len(parts), strict=True)


def _emptied_containers(node: ast.AST) -> Iterator[str]:
    """The containers from which a node removes objects."""
    match node:
        case ast.Call(func=ast.Attribute(value=emptied, attr=attr)) if attr in _EMPTYING:
            yield _dotted_name(emptied)
        case ast.Delete(targets=targets):
            yield from (_dotted_name(getattr(target, "value", target)) for target in targets)
        case ast.Assign(targets=targets):  # x[:] = ...
            yield from (
                _dotted_name(t.value)
                for t in targets
                if isinstance(t, ast.Subscript) and isinstance(t.slice, ast.Slice)
            )


def _is_renewed(keeper: str, loop: ast.AST) -> bool:
    """True if the keeper is made again, or emptied, in each iteration of a loop."""
    for node in ast.walk(loop):
        if keeper in _emptied_containers(node):
            return True
        if isinstance(node, ast.Assign) and any(
            _dotted_name(target) == keeper and not isinstance(value, ast.BinOp)
            for target, value in _target_values(node)
        ):
            return True
    return False
