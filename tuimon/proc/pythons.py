"""Which processes are Python: by the program's name, by libpython, or by what is linked into the program."""

from __future__ import annotations

import mmap
import os
import re

from tuimon.proc import processes, procfs

_PROGRAM = re.compile(r"(python|pypy)[\d.]*[a-z]*$")
#: libpython, or an extension module that only a Python loads.
_LIBRARY = re.compile(rb"/lib(python|pypy)\d[\w.]*\.so|\.(cpython|pypy)-\d[\w-]*\.so$", re.MULTILINE)
#: Files of a Python without the GIL: ``lib/python3.14t/``, ``libpython3.14t.so``, ``_json.cpython-314t-x86_64….so``.
_WITHOUT_GIL = re.compile(rb"/(lib)?python3\.\d+t[./]|\.cpython-3\d+t-")
#: Variables that every Python reads, and hardly any other program: their names are in its binary.
_VARIABLES = (b"PYTHONHOME", b"PYTHONDONTWRITEBYTECODE")
#: Programs larger than this are not searched: at 0.5 ms a MB it would take longer than 0.1 s.
_PROGRAM_BYTES = 256 << 20
#: Programs remembered at most.
_PROGRAMS = 256


def is_name(program: str) -> bool:
    """True if a program's base name is one of Python's: ``python3.12``."""
    return _PROGRAM.match(program) is not None


def is_python(pid: int) -> bool:
    """True if a process is a Python interpreter or has one inside; False if that may not be known."""
    program = processes.program_name(pid)
    if is_name(program):
        return True
    return bool(program) and (_LIBRARY.search(procfs.read_maps(pid)) is not None or _is_linked_into(pid))


def is_free_threaded(pid: int) -> bool:
    """True if a process runs a Python built without the GIL (python3.14t)."""
    program = processes.program_name(pid)
    if program.startswith("python") and program.endswith("t"):
        return True
    return _WITHOUT_GIL.search(procfs.read_maps(pid)) is not None


#: Programs that were searched, by device, inode and time of change.
_searched: dict[tuple[int, int, int], bool] = {}


def _is_linked_into(pid: int) -> bool:
    """True if the program has a Python linked into it. 1 ms for 2 MB, once a program."""
    path = f"/proc/{pid}/exe"
    try:
        found = os.stat(path)
        key = (found.st_dev, found.st_ino, found.st_mtime_ns)
        if key not in _searched:
            if len(_searched) >= _PROGRAMS:
                _searched.clear()
            _searched[key] = False
            if found.st_size <= _PROGRAM_BYTES:
                with open(path, "rb") as program, mmap.mmap(program.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    _searched[key] = all(content.find(text) >= 0 for text in _VARIABLES)
        return _searched[key]
    except (OSError, ValueError):  # ValueError: an empty file
        return False
