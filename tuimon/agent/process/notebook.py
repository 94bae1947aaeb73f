"""The cells of a notebook, or of IPython's prompt: their text, and where each has ended.

Once a cell has run, the training loop in it has been left: the time until the next cell belongs to no step, nor does a
cell that plots, saves or waits. Typed code is not in a file, so its text is left for the monitor in a file next to the
ring.
"""

import atexit
import linecache
import os
import sys
from functools import wraps
from typing import Any, Callable, Dict, List, Tuple

from ..outside import attempt, is_programs
from ..ring.files import CELLS, remove_file, side_file, write_file
from ..ring.layout import LOOP_LEFT
from ..torch_compat import rebinding

#: Most characters that are kept, those of the latest cells: a notebook has some 10,000.
_KEPT_CHARS = 500_000


def install(runtime: Any) -> None:
    """Follow the cells that IPython runs, until all is undone. ``runtime`` is the module of that name."""
    try:
        get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
        shell = None if get_ipython is None else get_ipython()
        if shell is None:
            return
        cells = TypedCells(runtime)
        rebinding.rebind(shell.compile, "cache", _noting(shell.compile.cache, cells))
        shell.events.register("post_run_cell", cells.end)
        rebinding.on_undo(lambda: shell.events.unregister("post_run_cell", cells.end))
        rebinding.on_undo(cells.remove_file)
        atexit.register(cells.remove_file)
        cells.add_known(shell.compile)
        cells.publish()
    except Exception as error:  # an IPython with other names: the hooks in torch are placed all the same
        if is_programs(error):
            raise


def _noting(original: Callable[..., str], cells: "TypedCells") -> Callable[..., str]:
    """``CachingCompiler.cache``, which names a cell and keeps its text in ``linecache`` before it is compiled."""

    @wraps(original)
    def tuimon_cell(transformed_code: str, number: int = 0, *args: Any, **kwargs: Any) -> str:
        file = original(transformed_code, number, *args, **kwargs)
        cells.begin(file, number)
        return file

    return tuimon_cell


class TypedCells:
    """The code typed in until now, by the file name that Python gives it."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._cells: Dict[str, Tuple[int, str]] = {}  # number and text
        self._path = ""
        self._pid = os.getpid()

    def add_known(self, compiler: Any) -> None:
        """Add the cells that have run, or run now."""
        for file, number in getattr(compiler, "_filename_map", {}).items():
            self._add(file, number)

    def begin(self, file: str, number: int) -> None:
        """A cell is about to run; a loop in it is another than the last one."""
        attempt(self._begin, file, number)

    def _begin(self, file: str, number: int) -> None:
        self._runtime.publish_facts_anew()
        self._add(file, number)
        self.publish()

    def end(self, result: Any) -> None:
        """A cell has run, to its end or not."""
        if self._runtime.writer() is not None:
            self._runtime.emit(LOOP_LEFT)
            self._runtime.write_waiting()

    def publish(self) -> None:
        """Leave the cells in a file next to the ring, if any. Raises OSError if there is no room."""
        writer = self._runtime.writer()
        if writer is None:
            return
        cells: List[List[Any]] = [[file, number, text] for file, (number, text) in self._cells.items()]
        self._path = side_file(writer.path, CELLS)
        write_file(self._path, {"cells": cells})

    def remove_file(self) -> None:
        """Remove what ``publish`` has left; a forked child leaves its parent's."""
        if self._path and self._pid == os.getpid():
            remove_file(self._path)

    def _add(self, file: str, number: int) -> None:
        entry: Tuple[Any, ...] = linecache.cache.get(file, ())
        if len(entry) != 4:  # a file whose text is read when it is needed
            return
        self._cells.pop(file, None)  # the latest last
        self._cells[file] = number, "".join(entry[2])
        kept = sum(len(text) for _, text in self._cells.values())
        while kept > _KEPT_CHARS and len(self._cells) > 1:
            kept -= len(self._cells.pop(next(iter(self._cells)))[1])
