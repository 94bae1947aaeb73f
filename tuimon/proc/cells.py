"""Cells of a notebook: what was typed in is in no file, and its agent leaves the text beside the ring."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from tuimon.agent.ring.paths import ring_path
from tuimon.agent.ring.side_files import CELLS, side_file
from tuimon.proc import procfs
from tuimon.proc.side_files import read_side_file

#: What Python takes a cell's file to be, and what we name it.
_CELL_FILE = re.compile(r"/ipykernel_\d+/\d+\.py$|^<ipython-input-|^In\[\d+\]$")
#: Processes whose cells are held at once.
_HELD = 8


class Cell(NamedTuple):
    """What a cell is named, ``In[4]`` as IPython does, and its text."""

    name: str
    text: bytes


class _File(msgspec.Struct):
    cells: list[tuple[str, int, str]]  # the file that Python takes it to be, number, text


def cell_of(pid: int, file: str) -> Cell | None:
    """The cell that a file of this process is; None of a file on the disk, and where no agent has left its text.

    ``file`` may be a cell's name as well. A DataLoader's worker, forked, has the cells of its parent.
    """
    if not _CELL_FILE.search(file):
        return None
    for process in _with_parent(pid):
        cell = _cells_of(process).get(file)
        if cell is not None:
            return cell
    return None


def _with_parent(pid: int) -> Iterator[int]:
    yield pid
    stat = procfs.read_process_stat(pid)
    if stat is not None:
        yield stat.ppid


def _cells_of(pid: int) -> Mapping[str, Cell]:
    try:
        path = side_file(ring_path(pid), CELLS)
        changed_ns = os.stat(path, follow_symlinks=False).st_mtime_ns
    except (OSError, ValueError, IndexError):
        return {}
    return _read(path, changed_ns)


@lru_cache(_HELD)
def _read(path: str, _changed_ns: int) -> Mapping[str, Cell]:
    """By the file that Python takes each to be, and by its name."""
    try:
        found = msgspec.json.decode(read_side_file(path), type=_File)
    except msgspec.DecodeError:
        return {}
    cells: dict[str, Cell] = {}
    for file, number, text in found.cells:
        cell = Cell(f"In[{number}]" if 0 <= number < 10**9 else file, text.encode("utf-8", "replace"))
        cells[file] = cells[cell.name] = cell
    return cells
