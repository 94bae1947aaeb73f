"""Files as a monitored process could read them: it names paths as it likes, and we may have more rights than it has.

A process with our user, mounts and root reads what we read. For any other, paths are resolved below its own root, and
each step is checked against the mode bits for its user and groups. Access control lists are ignored.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from tuimon.agent.ring.files import CELLS, ring_path, side_file
from tuimon.proc import procfs
from tuimon.proc.processes import start_unix_s
from tuimon.proc.ring_facts import decoded, read_side_file

_READ, _SEARCH = 4, 1
#: Bits 1 and 2 of the capability sets (linux/capability.h): with either one, any file can be read.
_CAP_DAC = 1 << 1 | 1 << 2


class Content(Struct, frozen=True, gc=False):
    """A file's bytes, when it was last changed, and the user id of its owner."""

    data: bytes
    changed_unix_s: float
    owner: int


class Rights(NamedTuple):
    """Whoever reads: user and group ids (real, effective, of the file system), and the process whose root applies.

    ``pid`` 0: tuimon itself.
    """

    pid: int
    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()
    all_files: bool = False  # root with its capabilities

    def read(self, path: str, limit: int, after_unix_s: float = -math.inf) -> Content | None:
        """A regular file of at most ``limit`` bytes; None if there is none, it may not be read, or it is older."""
        try:
            handle = self._find(path) if self.pid else os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            return _content(handle, limit, after_unix_s)
        except OSError:
            return None
        finally:
            os.close(handle)

    def _find(self, path: str) -> int:
        """A handle (O_PATH) of the file. We follow symbolic links ourselves, as the kernel would start at our root."""
        if not path.startswith("/"):
            raise FileNotFoundError(path)
        handles = [os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_CLOEXEC)]  # root and way to the file
        names = path.split("/")[::-1]
        steps = 0
        try:
            while names:
                name = names.pop()
                steps += 1
                if steps > 400:  # with those of its symbolic links
                    raise PermissionError(path)
                if name == "..":
                    _cut(handles, max(len(handles) - 1, 1))
                elif name not in ("", "."):
                    target = self._enter(handles, name)
                    names += target.split("/")[::-1]
                    if target.startswith("/"):
                        _cut(handles, 1)
            self._check(handles[-1], _READ)
            return handles.pop()
        finally:
            _cut(handles, 0)

    def _enter(self, handles: list[int], name: str) -> str:
        """Add the handle of the entry in the last folder and return ""; for a symbolic link only return its target."""
        self._check(handles[-1], _SEARCH)
        handle = os.open(name, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=handles[-1])
        if not stat.S_ISLNK(os.fstat(handle).st_mode):
            handles.append(handle)
            return ""
        try:
            return os.readlink("", dir_fd=handle)
        finally:
            os.close(handle)

    def _check(self, handle: int, bit: int) -> None:
        """Raise PermissionError unless all user ids have the mode bit."""
        info = os.fstat(handle)
        if self.all_files:
            return
        for uid in self.uids:
            shift = 6 if uid == info.st_uid else 3 if info.st_gid in self.gids else 0
            if not info.st_mode >> shift & bit:
                raise PermissionError


OURS = Rights(0)


class TargetFiles:
    """The files of one process, by the rights that it has now, or had last if it has ended."""

    def __init__(
        self,
        pid: int | None,
        process_start_unix_s: float | None = None,
        *,
        not_after_unix_s: float | None = None,
        ended: Rights | None = None,
    ) -> None:
        """``pid`` None: tuimon itself. A file changed after ``not_after_unix_s`` (the start) may not be what runs.

        ``ended``: the rights of a process that has already ended.
        """
        self.not_after_unix_s = process_start_unix_s if not_after_unix_s is None else not_after_unix_s
        self._pid = pid
        self._start_unix_s = process_start_unix_s
        self.rights = OURS if pid is None else ended  # None: unknown
        self.refresh()

    def cell(self, file: str) -> NotebookCell | None:
        """The notebook cell for which the process uses this file name."""
        return cell_of(self._pid, file) if self._pid is not None else None

    def refresh(self) -> Rights | None:
        """The rights of this moment; takes about 0.05 ms."""
        ticks, expected_s = procfs.start_ticks(self._pid) if self._pid is not None else None, self._start_unix_s
        if ticks is not None and self._pid is not None:
            # a record rounds it to 10 ms
            is_it = expected_s is None or abs(start_unix_s(ticks) - expected_s) < 0.05
            self.rights = (rights_of(self._pid) if is_it else None) or self.rights
        return self.rights


def rights_of(pid: int) -> Rights | None:
    """The rights of a live process; None for a zombie, which no longer has a root."""
    fields = procfs.read_fields(f"/proc/{pid}/status")
    try:
        uids = frozenset(map(int, fields["Uid"].split()))
        gids = frozenset(map(int, fields["Groups"].split() + fields["Gid"].split()[3:]))
        if fields["State"].startswith(("Z", "X")):
            return None
        all_files = uids == {0} and bool(int(fields["CapEff"], 16) & _CAP_DAC)
    except (KeyError, ValueError):
        return None
    if uids == {os.geteuid()} and (all_files or os.geteuid()) and _sees_what_we_see(pid):
        return OURS
    return Rights(pid, uids, gids, all_files)


def _sees_what_we_see(pid: int) -> bool:
    """True if a process has our mounts, users and root. One of our own that may not be inspected counts as such."""
    try:
        same = all(os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}") for kind in _SPACES)
        return same and os.path.samefile(f"/proc/{pid}/root", "/")
    except PermissionError:
        return os.geteuid() != 0
    except OSError:
        return False


_SPACES = ("mnt", "user")


def _cut(handles: list[int], count: int) -> None:
    """Close all handles but the first ``count``."""
    while len(handles) > count:
        os.close(handles.pop())


def _content(handle: int, limit: int, after_unix_s: float) -> Content | None:
    """The content behind an O_PATH handle. Only a regular file is opened: opening a device may have effects."""
    info = os.fstat(handle)
    # A file of the kernel (procfs) has size 0, and reading it may block, or consume what it holds.
    if not stat.S_ISREG(info.st_mode) or not 0 < info.st_size <= limit or info.st_mtime <= after_unix_s:
        return None
    opened = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return Content(os.read(opened, info.st_size), info.st_mtime, info.st_uid)
    finally:
        os.close(opened)


#: The file name that Python has for a cell, and our name for it.
_CELL_FILE = re.compile(r"/ipykernel_\d+/\d+\.py$|^<ipython-input-|^In\[\d+\]$")


class NotebookCell(NamedTuple):
    """A cell of a notebook: its name, ``In[4]`` as in IPython, and its text."""

    name: str
    text: bytes


class _CellFile(Struct):
    cells: list[tuple[str, int, str]]  # the file name that Python uses, number, text


def cell_of(pid: int, file: str) -> NotebookCell | None:
    """The cell for a file name of this process; None for a file on the disk, or if no agent has left the cell's text.

    ``file`` may also be a cell's name. A forked DataLoader worker has the cells of its parent.
    """
    if not _CELL_FILE.search(file):
        return None
    stat = procfs.read_process_stat(pid)
    for process in (pid, stat.ppid) if stat is not None else (pid,):
        with suppress(OSError, ValueError, IndexError):
            path = side_file(ring_path(process), CELLS)
            cell = _read(path, os.stat(path, follow_symlinks=False).st_mtime_ns).get(file)
            if cell is not None:
                return cell
    return None


@lru_cache(8)  # processes
def _read(path: str, _changed_ns: int) -> Mapping[str, NotebookCell]:
    """The cells, by the file name that Python uses for each, and by their own names."""
    found, cells = decoded(read_side_file(path), _CellFile), dict[str, NotebookCell]()
    for file, number, text in found.cells if found is not None else ():
        cell = NotebookCell(f"In[{number}]" if 0 <= number < 10**9 else file, text.encode("utf-8", "replace"))
        cells[file] = cells[cell.name] = cell
    return cells
