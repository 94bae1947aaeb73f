"""Where an interpreter keeps its data in memory: the table of offsets that CPython itself publishes for tools.

``_Py_DebugOffsets``, the first member of ``_PyRuntime``, in a section of its own
(https://github.com/python/cpython/blob/3.14/Include/internal/pycore_debug_offsets.h; in 3.13 pycore_runtime.h).
"""

from __future__ import annotations

import os
from struct import Struct

from .elf import find_section
from .memory import ProcessMemory, Unreadable

_SECTION = b".PyRuntime"
_COOKIE = b"xdebugpy"
#: No structure of an interpreter is larger.
_MAX_OFFSET = 1 << 24

_RUNTIME = ("runtime", "size finalizing interpreters_head")
_THREAD = ("thread", "size prev next interp current_frame thread_id native_thread_id datastack_chunk status")
_INTERPRETER = "size id next threads_head {}gc modules sysdict builtins ceval_gil gil gil_enabled gil_locked gil_holder"
_FRAME = "size previous executable instr_ptr localsplus owner"
_CODE = "size filename name qualname linetable firstlineno argcount names kinds code_adaptive"
_TYPES = (("object", "size ob_type"), ("type", "size tp_name tp_repr tp_flags"))
_SEQUENCES = (("tuple", "size ob_item ob_size"), ("list", "size ob_item ob_size"))
_LATER = (
    ("dict", "size ma_keys ma_values"),
    ("float", "size ob_fval"),
    ("long", "size lv_tag ob_digit"),
    ("bytes", "size ob_size ob_sval"),
    ("str", "size state length asciiobject_size"),
)
#: The fields by version, in their order; of each only what comes before the last one that is read.
_FIELDS: dict[tuple[int, int], tuple[tuple[str, str], ...]] = {
    (3, 13): (
        _RUNTIME,
        ("interpreter", _INTERPRETER.format("")),
        _THREAD,
        ("frame", _FRAME),
        ("code", _CODE),
        *_TYPES,
        *_SEQUENCES,
        *_LATER,
    ),
    (3, 14): (
        _RUNTIME,
        ("interpreter", _INTERPRETER.format("threads_main ") + " code_generation tlbc_generation"),
        _THREAD,
        ("frame", _FRAME + " stackpointer tlbc_index"),
        ("code", _CODE + " tlbc"),
        *_TYPES,
        *_SEQUENCES,
        ("set", "size used table mask"),
        *_LATER,
    ),
}


class UnknownPython(Exception):
    """A process whose interpreter cannot be read; the text says why."""


class DebugOffsets:
    """The table of one interpreter: offsets by name (``frame.previous``)."""

    def __init__(self, runtime: int, version: tuple[int, int], free_threaded: bool, offsets: dict[str, int]) -> None:
        """``runtime``: the address of ``_PyRuntime``."""
        self.runtime = runtime
        self.version = version
        self.free_threaded = free_threaded
        self._offsets = offsets

    def __getitem__(self, name: str) -> int:
        return self._offsets[name]

    def get(self, name: str) -> int:
        """An offset; 0 where this interpreter has no such field."""
        return self._offsets.get(name, 0)


def find_offsets(memory: ProcessMemory) -> DebugOffsets:
    """The table of a process. Raises UnknownPython, and OSError where its maps may not be read."""
    for mapped in _mapped_programs(memory.folder):
        try:
            section = find_section(mapped.path, _SECTION)
            if section is not None:
                return _read(memory, mapped.start + section.ahead)
        except (OSError, Unreadable):
            continue
    raise UnknownPython("no interpreter was found in its memory")


class _Mapped:
    __slots__ = ("path", "start")

    def __init__(self, path: str, start: int) -> None:
        self.path = path  # as we may open it
        self.start = start


def _mapped_programs(folder: str) -> list[_Mapped]:
    """The program and what else may be a Python, with where each begins in memory."""
    found: list[_Mapped] = []
    with open(folder + "/maps", "rb") as maps:
        lines = maps.read().splitlines()
    program = _device_and_inode(folder + "/exe")
    for line in lines:
        fields = line.split(None, 5)
        if len(fields) < 6 or int(fields[2], 16):
            continue  # not the beginning of a file
        start = int(fields[0].partition(b"-")[0], 16)
        if os.path.basename(fields[5]).startswith((b"libpython", b"python")):
            found.append(_Mapped(folder + "/root" + fields[5].decode("utf-8", "surrogateescape"), start))
        elif program is not None and (fields[3], int(fields[4])) == program:
            found.append(_Mapped(folder + "/exe", start))
    return found


def _device_and_inode(program: str) -> tuple[bytes, int] | None:
    try:
        status = os.stat(program)
    except OSError:
        return None
    return b"%02x:%02x" % (os.major(status.st_dev), os.minor(status.st_dev)), status.st_ino


def _read(memory: ProcessMemory, runtime: int) -> DebugOffsets:
    cookie, hex_version, free_threaded = Struct("<8sQQ").unpack(memory.read(runtime, 24))
    if cookie != _COOKIE:
        raise Unreadable("no table of offsets")
    version = (hex_version >> 24 & 0xFF, hex_version >> 16 & 0xFF)
    fields = _FIELDS.get(version)
    if fields is None:
        raise UnknownPython("the memory of Python %d.%d is not known" % version)
    names = ["%s.%s" % (group, name) for group, text in fields for name in text.split()]
    numbers = Struct("<%dQ" % len(names)).unpack(memory.read(runtime + 24, 8 * len(names)))
    if max(numbers) > _MAX_OFFSET:
        raise Unreadable("a table of offsets that is damaged")
    return DebugOffsets(runtime, version, bool(free_threaded), dict(zip(names, numbers)))
