"""Which lines a ``with`` block, a loop or a function spans, read from the source."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

from tuimon.proc.target_files import TargetFiles
from tuimon.sources.source_text import SourceText

if TYPE_CHECKING:
    import ast

#: How many parsed files are held at once.
_FILES_HELD = 16
#: A larger file is not parsed: parsing takes about a second per MB.
_LARGEST_BYTES = 512 << 10


class Block(NamedTuple):
    """First and last line, counted from 1."""

    first: int
    last: int


class SourceBlocks:
    """Blocks of source files, each read once; a file that is gone, large, changed or of another Python has none."""

    def __init__(self, files: TargetFiles | None = None) -> None:
        """``files``: of the process that names them; ours without."""
        self._files = files or TargetFiles(None)
        self._source = SourceText()
        self._withs: dict[str, list[tuple[Block, Block]]] = {}  # file: lines of the statement's head, its whole
        self._functions: dict[str, dict[tuple[str, int], Block]] = {}
        self._loops: dict[str, list[Block] | None] = {}  # file; None: its source is not known

    def name_of(self, file: str) -> str:
        """A file's name in records: the number of a notebook's cell."""
        cell = self._files.cell(file)
        return file if cell is None else cell.name

    def block(self, file: str, line: int, function: str) -> Block | None:
        """The innermost ``with`` block whose head is on this line, or the function that begins there."""
        if file not in self._withs:
            self._read(file)
        whole = self._functions[file].get((function, line))
        if whole is not None:
            return whole
        found = [(head, block) for head, block in self._withs[file] if head.first <= line <= head.last]
        return min(found, key=lambda pair: pair[0].last - pair[0].first)[1] if found else None

    def in_one_loop(self, file: str, line: int, other: int) -> bool | None:
        """True if a ``for`` or ``while`` statement, its head included, holds both lines; None without the source."""
        if file not in self._withs:
            self._read(file)
        loops = self._loops[file]
        if loops is None:
            return None
        return any(block.first <= min(line, other) and max(line, other) <= block.last for block in loops)

    def _read(self, file: str) -> None:
        while len(self._withs) >= _FILES_HELD:
            oldest = next(iter(self._withs))
            for each in (self._withs, self._functions, self._loops):
                del each[oldest]
        withs = self._withs[file] = []
        functions = self._functions[file] = {}
        import ast

        tree = parsed(self._source.whole(file, self._files))
        loops: list[Block] = []
        self._loops[file] = loops if tree.body else None
        for node in ast.walk(tree):
            match node:
                case ast.For() | ast.AsyncFor() | ast.While():
                    loops.append(Block(node.lineno, node.end_lineno or node.lineno))
                case ast.With() | ast.AsyncWith():
                    last = max(item.context_expr.end_lineno or 0 for item in node.items)
                    head = Block(node.lineno, last)
                    withs.append((head, Block(node.lineno, node.end_lineno or last)))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    functions[node.name, first] = Block(first, node.end_lineno or first)


def parsed(text: bytes) -> ast.Module:
    """A file's statements; none of one that is large, or of another Python."""
    import ast

    if len(text) <= _LARGEST_BYTES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the user's code, which is not ours to judge
                return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return ast.Module([], [])
