"""Facts from the syntax of the user's files: blocks, loops, code without gradients, numbers of threads and workers."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tuimon.bounds import Latest
from tuimon.code_origin import function_at, is_user_file
from tuimon.line_syntax import last_name, parsed, turns_off_gradients
from tuimon.proc.ring_facts import RawFrame
from tuimon.proc.target_files import Rights, TargetFiles
from tuimon.records import Frame, KeepingLine, Setting, SettingLine
from tuimon.sources.keeping_lines import keeping_lines
from tuimon.sources.source_text import FILES_HELD, SOURCE_CHARS, SourceText, line_of
from tuimon.text import CodeLine, plain
from tuimon.torch_code import registers_hook

#: Longest name of a function in records; a file's may have four times as many characters.
NAME_CHARS = 300
#: A larger file is not parsed: parsing takes about a second per MB.
_LARGEST_BYTES = 512 << 10
_VARIABLES = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
#: A file without these has no line that keeps anything.
_MAY_KEEP = re.compile(
    rb"\.backward\(|\bplt\.(?:figure|subplots)\(|\bself\.\w+(?:\.(?:append|appendleft|add|extend)\(|\[[^\]]+\] = )"
)


class Block(NamedTuple):
    """First and last line, counted from 1."""

    first: int
    last: int

    def holds(self, *lines: int) -> bool:
        return self.first <= min(lines) and max(lines) <= self.last


class _Function(NamedTuple):
    name: str
    block: Block  # from its first decorator on
    body: Block  # from ``def`` on
    no_grad: Block | None


class _With(NamedTuple):
    head: Block
    block: Block
    body: Block
    no_grad: bool


class FileFacts:
    """The facts of one file; none if it is gone, large, changed or of another Python."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        """``lines`` of the file, without their ends."""
        text = b"\n".join(lines)
        tree = (parsed(text) if len(text) <= _LARGEST_BYTES else None) or ast.Module([], [])
        self._is_known = bool(tree.body)
        self._functions: list[_Function] = []
        self._withs: list[_With] = []
        self._loops: list[ast.For | ast.AsyncFor | ast.While] = []
        self._over_layers: set[ast.AST] = set()
        #: the lines of each ``while``, its head included, that only waits for its condition; in any other ``while``,
        #: those of a branch that only sleeps
        self.polling: set[int] = set()
        self.skipping: set[int] = set()  # the heads of ``for`` that take one in n items, by their number
        self._comprehensions: list[Block] = []
        #: the packages that it imports, by the name that stands for each, or for something taken out of it
        self.imports: dict[str, str] = {}
        settings, calls = list[tuple[int, Setting]](), dict[int, str]()  # the latter: on one line each
        for node in ast.walk(tree):  # which does not recurse: each ``elif`` is nested in the one before
            self._note(node)
            settings += _settings(node)
            if isinstance(node, ast.Call) and registers_hook(last_name(node.func)):
                settings.append((node.lineno, "hook"))
                calls[node.lineno] = plain(ast.unparse(node))[:SOURCE_CHARS]
        sources = {line: line_of(lines, line) for line, _ in settings} | calls
        #: lines of it that set how many threads share an operation, how many workers load, its cores, tracer and hooks
        self.counts = tuple(
            SettingLine(what, line, at.name if (at := self._around(line)) else "<module>", sources[line])
            for line, what in sorted(set(settings))[:4]
        )
        may_keep = any(_MAY_KEEP.search(line) for line in lines)
        self.keeping: tuple[KeepingLine, ...] = tuple(keeping_lines(tree, lines)) if may_keep else ()

    def block(self, line: int, function: str) -> Block | None:
        """The innermost ``with`` block whose head is on this line, or the function that begins there."""
        whole = next(
            (each.block for each in self._functions if (each.name, each.block.first) == (function, line)), None
        )
        if whole is not None:
            return whole
        found = [each for each in self._withs if each.head.holds(line)]
        return min(found, key=lambda each: each.head.last - each.head.first).block if found else None

    def in_one_loop(self, line: int, other: int) -> bool | None:
        """True if a ``for`` or ``while`` statement, its head included, holds both lines; None if that is unknown."""
        return any(_block(loop).holds(line, other) for loop in self._loops) if self._is_known else None

    def loops(self, line: int) -> int:
        """The number of ``for`` and ``while`` statements of its function around a line, and one for a comprehension.

        One over layers, ``for layer in self.layers: x = layer(x)``, does not count.
        """
        function = self._around(line)
        begin = function.body.first if function is not None else 0
        loops = (loop for loop in self._loops if loop.lineno >= begin and loop not in self._over_layers)
        bodies = (Block(loop.body[0].lineno, _block(loop).last) for loop in loops)
        return sum(body.holds(line) for body in bodies) + any(each.holds(line) for each in self._comprehensions)

    def without_gradients(self, line: int) -> Block | None:
        """The outermost ``with torch.no_grad():`` around a line, or its function if that is decorated so.

        In this code it is 3 to 5 for lines 4 and 5, and none for line 2::

            2  loss = cost(model(x), y)
            3  with torch.no_grad():
            4      for x, y in held_out:
            5          right += hits(model(x), y)
        """
        function = self._around(line)
        if function is not None and function.no_grad is not None:
            return function.no_grad
        begin = function.body.first if function is not None else 0
        around = [each for each in self._withs if each.no_grad and each.body.holds(line) and each.block.first >= begin]
        return min(around, key=lambda each: each.block.first).block if around else None

    def _around(self, line: int) -> _Function | None:
        inside = (each for each in self._functions if each.body.holds(line))
        return max(inside, key=lambda each: each.body.first, default=None)

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.For() | ast.AsyncFor() | ast.While():
                self._loops.append(node)
                if isinstance(node, ast.For) and _takes_one_in_n(node):
                    self.skipping.add(node.lineno)
                if not isinstance(node, ast.While) and _runs_layers(node):
                    self._over_layers.add(node)
                statements = [each for each in ast.walk(node) if isinstance(each, ast.stmt) and each is not node]
                if isinstance(node, ast.While) and all(map(_waits, statements)):
                    self.polling.update(range(node.lineno, _block(node).last + 1))
                elif isinstance(node, ast.While):
                    if all(isinstance(each, ast.If) and _only_looks(each) for each in node.body):
                        self.polling.update((node.lineno, *(each.lineno for each in node.body)))
                    branches = (
                        part for each in statements if isinstance(each, ast.If) for part in (each.body, each.orelse)
                    )
                    self.polling.update(part[0].lineno for part in branches if part and _sleeps(part))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehensions.append(_block(node))
            case ast.With() | ast.AsyncWith():
                block, last = _block(node), max(item.context_expr.end_lineno or 0 for item in node.items)
                no_grad = any(turns_off_gradients(item.context_expr) for item in node.items)
                body = Block(node.body[0].lineno, block.last)
                self._withs.append(_With(Block(node.lineno, last), block, body, no_grad))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                body = _block(node)
                block = Block(first, body.last)
                no_grad_block = block if any(map(turns_off_gradients, node.decorator_list)) else None
                self._functions.append(_Function(node.name, block, body, no_grad_block))
            case ast.Import(names=names):
                for name in names:
                    package = name.name.partition(".")[0]
                    self.imports[name.asname or package] = package
            case ast.ImportFrom(module=str(module), names=names, level=0):
                package = module.partition(".")[0]
                self.imports |= {name.asname or name.name: package for name in names}


class SourceFacts:
    """Facts of files, each parsed once."""

    def __init__(self) -> None:
        self.source = SourceText()
        self._facts = Latest[tuple[str, Rights | None], FileFacts](FILES_HELD)

    def of(self, file: str, files: TargetFiles) -> FileFacts:
        key = (file, files.rights)
        known = self._facts.get(key)
        if known is None:
            known = self._facts[key] = FileFacts(self.source.lines(file, files))
        return known


class ProcessCode:
    """The code of one process: whose it is, its names and lines in records, and the facts of its files."""

    def __init__(
        self, files: TargetFiles | None = None, facts: SourceFacts | None = None, programs: Collection[str] = ()
    ) -> None:
        """``files``: those of the process that names them (None: ours). ``facts``: shared by several processes.

        ``programs``: the installed packages that form the program, whose code counts as the user's.
        """
        self.files = files or TargetFiles(None)
        self._facts = facts or SourceFacts()
        self._programs = programs

    def is_user(self, file: str) -> bool:
        return is_user_file(file, self._programs)

    def line(self, at: CodeLine) -> str:
        """See ``SourceText.line``."""
        return self._facts.source.line(at.file, at.line, self.files)

    def named(self, at: CodeLine) -> RawFrame:
        """A line of code as records name it: a cell of a notebook has its number as file name."""
        cell = self.files.cell(at.file)
        return RawFrame((at.file if cell is None else cell.name)[-4 * NAME_CHARS :], at.line, at.function[:NAME_CHARS])

    def frame(self, at: RawFrame) -> Frame:
        """A line as records have it, with its text if it is the user's."""
        user = self.is_user(at.file)
        return Frame(*self.named(at), self.line(at) if user else "", user)

    def innermost(self, stack: Sequence[RawFrame]) -> RawFrame | None:
        """The innermost line of the user's code on a stack, root first; None if there are none."""
        depth = next((depth for depth in range(len(stack) - 1, -1, -1) if self.is_user(stack[depth].file)), None)
        return stack[depth]._replace(function=function_at(stack[: depth + 1])) if depth is not None else None

    def facts(self, file: str) -> FileFacts:
        return self._facts.of(file, self.files)


def _block(node: ast.stmt | ast.expr) -> Block:
    return Block(node.lineno, node.end_lineno or node.lineno)


def _runs_layers(loop: ast.For | ast.AsyncFor) -> bool:
    """True if each iteration calls the loop's variable, or an item at it, on the last result: ``x = layer(x)``."""
    names = _names([loop.target])
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and (made := _names(node.targets) - names):
            for call in (each for each in ast.walk(node.value) if isinstance(each, ast.Call)):
                called = call.func.slice if isinstance(call.func, ast.Subscript) else call.func
                if _names([called]) & names and _names(call.args) & made:
                    return True
    return False


def _takes_one_in_n(loop: ast.For) -> bool:
    """True if all that a loop does with an item depends on its number: ``if n % workers == worker: yield item``."""
    match loop.target, loop.iter:
        case ast.Tuple(elts=[_, item]), ast.Call(func=ast.Name(id="enumerate")):
            items = _names([item])
        case _:
            items = _names([loop.target])
    for n, each in enumerate(loop.body, 1):
        if isinstance(each, ast.If) and any(isinstance(part, ast.Mod) for part in ast.walk(each.test)):
            return not each.orelse and (n == len(loop.body) or isinstance(each.body[-1], ast.Continue))
        if _names([each]) & items:
            return False
    return False


def _waits(statement: ast.AST) -> bool:
    """True for a statement of a polling loop: a condition, a sleep, an end of the loop, or nothing."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return last_name(statement.value.func) == "sleep"
    return isinstance(statement, ast.Pass | ast.If | ast.With | ast.Break | ast.Continue | ast.Return | ast.Raise)


def _only_looks(branch: ast.If) -> bool:
    """True if the line of a condition, without ``else``, only looks at a state: ``if not queue.empty():``."""
    calls = (last_name(each.func) for each in ast.walk(branch.test) if isinstance(each, ast.Call))
    looks = all(name in ("empty", "full", "is_set", "len", "poll", "qsize") for name in calls)
    return looks and not branch.orelse and branch.body[0].lineno > branch.lineno


def _sleeps(branch: Sequence[ast.stmt]) -> bool:
    """True if a branch sleeps and does nothing else: there is nothing yet to work on."""
    return isinstance(branch[0], ast.Expr) and all(map(_waits, branch))


def _names(nodes: Sequence[ast.AST]) -> set[str]:
    return {node.id for each in nodes for node in ast.walk(each) if isinstance(node, ast.Name)}


def _settings(node: ast.AST) -> Iterator[tuple[int, Setting]]:
    """The settings of a node, by line: ``torch.set_num_threads(8)``, ``num_workers=4``."""
    match node:
        case ast.Call(func=func, args=args):
            match last_name(func), args:
                case "set_num_threads", _:
                    yield node.lineno, "threads"
                case (("setdefault" | "putenv"), [ast.Constant(value=str(name)), *_]) if name in _VARIABLES:
                    yield node.lineno, "threads"
                case (("settrace" | "setprofile"), [first, *_]) if getattr(first, "value", first) is not None:
                    yield node.lineno, "tracer"
                case ("sched_setaffinity", _) | ("cpu_affinity", [_, *_]):
                    yield node.lineno, "cores"
        case ast.keyword(arg="num_workers"):
            yield node.lineno, "workers"
        case ast.Assign(targets=targets):
            for target in targets:
                if isinstance(target, ast.Subscript) and getattr(target.slice, "value", None) in _VARIABLES:
                    yield node.lineno, "threads"
                elif last_name(target) == "num_workers":
                    yield node.lineno, "workers"
        case ast.arguments(args=args, defaults=defaults) if defaults:
            yield from ((each.lineno, "workers") for each in args[-len(defaults) :] if each.arg == "num_workers")


#: The facts of a file that cannot be read.
NO_FACTS = FileFacts(())
