"""The pending call that starts our thread in a process: machine code, as no function of Python's C API would do.

The main thread runs none of our Python: the interpreter calls handlers of signals there, between any two instructions,
and what they raise in a statement of ``PyRun_SimpleString`` is printed and lost. Our statement runs in a thread of its
own, in which no handler runs; the main thread waits in C while a file is there. ``pending_call.c`` is the source.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from tuimon.errors import CannotInject


class Code(NamedTuple):
    """``entry``: where ``pending_call`` begins."""

    content: bytes
    entry: int


#: By processor.
CODE = {
    "x86_64": Code(
        bytes.fromhex(
            "55534889fb50ff5718488dbb4004000089c5ff5328488b432089ef5a5b5dffe041554889fe415455534889fb488d3dcdffffff51"
            "ff1348ffc0742fff530841bcd00700004c8d6b404889c531f64c89efff533085c0750dbfe8030000ff533841ffcc75e74889efff"
            "53105a31c05b5d415c415dc3"
        ),
        0x20,
    ),
    "aarch64": Code(
        bytes.fromhex(
            "f353bea9f30300aa000c40f9fe0b00f900003fd6f403002a611640f96002119120003fd6fe0b40f9e003142a611240f9f353c2a8"
            "f00301aa00021fd6f353bda9e10300aaf30300aa020040f9f55b01a980fdff10fe1300f940003fd61f0400b160020054600640f9"
            "7602019115fa805200003fd6f40300aa621a40f9e00316aa0100805240003fd6c0000035611e40f9007d805220003fd6b5060071"
            "e1feff54610a40f9e00314aa20003fd6f55b41a900008052fe1340f9f353c3a8c0035fd6"
        ),
        0x3C,
    ),
}
#: The functions that it calls, in the order of ``struct request``.
OF_PYTHON = (
    "PyThread_start_new_thread",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyRun_SimpleString",
)
OF_C_LIBRARY = ("access", "usleep")
#: Functions of the interpreter in which a thread cannot hold the lock of the pending calls: they take no lock and call
#: nothing that does while it is theirs. A loop of pure Python spends 30 % in them.
HARMLESS = """
    PyLong_FromLong PyLong_FromSsize_t PyLong_AsSsize_t PyLong_AsLong PyFloat_FromDouble PyType_GenericAlloc
    PyType_IsSubtype _PyType_Lookup PyList_Append PyList_New PyTuple_New PyTuple_Pack _PyTuple_FromArray
    PyDict_GetItemWithError PyDict_SetItem PyDict_Next PyDict_Contains PyObject_GetAttr _PyObject_GetMethod
    PyObject_GenericGetAttr _PyObject_GenericGetAttrWithDict _PyObject_GetDictPtr PyObject_GetItem PyObject_SetItem
    PyObject_GetIter PyObject_IsTrue PyObject_RichCompare PyObject_Hash PyObject_GC_Del PyObject_GC_UnTrack
    _PyObject_GC_New PyObject_Malloc PyObject_Free _PyObject_Malloc _PyObject_Free PyMem_Malloc PyMem_Free PyNumber_Add
    PyNumber_Multiply PyNumber_Subtract PyNumber_Index PyNumber_InPlaceAdd PyObject_ClearWeakRefs PySequence_GetItem
    _PyUnicode_FromId PyUnicode_FromFormat PyUnicode_Compare
"""
#: Offset of the request in the page, after the code.
REQUEST = 256
_PATH_BYTES = 1024
PAGE = 4096


def page(machine: str, functions: Mapping[str, int], path: str, statement: str) -> bytes:
    """The content of the page. ``functions``: their addresses; ``path``: the main thread waits while it is there.

    Raises CannotInject.
    """
    table = struct.pack("<8Q", *(functions[name] for name in (*OF_PYTHON, *OF_C_LIBRARY)))
    waited_for = path.encode("utf-8", "surrogateescape")
    content = CODE[machine].content.ljust(REQUEST, b"\0") + table + waited_for.ljust(_PATH_BYTES, b"\0")
    content += statement.encode() + b"\0"
    if len(waited_for) >= _PATH_BYTES or len(content) > PAGE:
        raise CannotInject(
            f"the path of the temporary folder is too long: {path[:80]}...", "Set TMPDIR to a short one."
        )
    return content
