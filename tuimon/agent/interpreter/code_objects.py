"""Code objects as they lie in memory: name, file, and the line of an instruction."""

from __future__ import annotations

from .debug_offsets import DebugOffsets
from .line_table import LineTable
from .memory import ProcessMemory, Unreadable, word

#: Longest name or path, and longest table of lines, in bytes.
_TEXT_BYTES = 4096
_TABLE_BYTES = 4 << 20
#: Bytes of a character, and how it is written, by the kind of a string.
_ENCODINGS = {1: (1, "latin-1"), 2: (2, "utf-16-le"), 4: (4, "utf-32-le")}
#: Where the state of a string has its kind (3 bits), ``compact`` and ``ascii``: in free-threaded 3.14 the field before
#: them is a byte (Include/cpython/unicodeobject.h).
_STATE_SHIFT = 2
_FREE_THREADED_STATE_SHIFT = 8
#: A compact string that is not ASCII has two more words before its text.
_NOT_ASCII_BYTES = 16
_UNIT_BYTES = 2


class Code:
    """A function's code."""

    __slots__ = ("address", "begin", "copies", "file", "line", "name", "units")

    def __init__(
        self, address: int, name: str, file: str, lines: LineTable, *, begin: int, units: int, copies: int
    ) -> None:
        """``begin``: the address of its first instruction, ``units``: how many code units it has.

        ``copies``: the address of the list of its copies for each thread, or 0.
        """
        self.address = address
        self.name = name
        self.file = file
        self.line = lines.line  # of a code unit
        self.begin = begin
        self.units = units
        self.copies = copies


class CodeObjects:
    """The code objects of a window, each read once: later another one may have its address."""

    def __init__(self, memory: ProcessMemory, offsets: DebugOffsets) -> None:
        self._memory = memory
        self._offsets = offsets
        self._known: dict[int, Code] = {}
        self._type: int | None = None  # of code objects
        shifted = offsets.free_threaded and offsets.version >= (3, 14)
        self._state_shift = _FREE_THREADED_STATE_SHIFT if shifted else _STATE_SHIFT

    def at(self, address: int) -> Code:
        """The code object there. Raises Unreadable."""
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = self._read(address)
        return known

    def unit_of(self, code: Code, instruction: int, copy: int) -> int:
        """Which code unit an address is in; ``copy``: the number of the thread's own copy, 0 for the shared code."""
        begin = code.begin if not (copy and code.copies) else self._copy(code.copies, copy) or code.begin
        unit = (instruction - begin) // _UNIT_BYTES
        if not -1 <= unit < code.units:
            raise Unreadable("an instruction outside of its code")
        return max(unit, 0)

    def _copy(self, copies: int, number: int) -> int:
        """Where a copy begins: a count, then an address for each; 0 where that thread has none."""
        if number >= self._memory.word(copies):
            return 0
        return self._memory.word(copies + 8 + 8 * number)

    def _read(self, address: int) -> Code:
        offsets = self._offsets
        raw = self._memory.read(address, offsets["code.code_adaptive"] + 8)
        self._check_type(word(raw, offsets["object.ob_type"]))
        line_at = offsets["code.firstlineno"]
        first_line = int.from_bytes(raw[line_at : line_at + 4], "little", signed=True)
        try:
            lines = LineTable(self._bytes(word(raw, offsets["code.linetable"])), first_line)
        except IndexError as error:
            raise Unreadable("a damaged table of lines") from error
        copies_at = offsets.get("code.tlbc")
        return Code(
            address,
            self._text(word(raw, offsets["code.name"])),
            self._text(word(raw, offsets["code.filename"])),
            lines,
            begin=address + offsets["code.code_adaptive"],
            units=word(raw, offsets["object.size"]),  # the size of a variable object follows the object's head
            copies=word(raw, copies_at) if copies_at else 0,
        )

    def _check_type(self, type_address: int) -> None:
        if self._type is None:
            name = self._memory.word(type_address + self._offsets["type.tp_name"])
            if self._memory.c_string(name) != b"code":
                raise Unreadable("no code object")
            self._type = type_address
        elif type_address != self._type:
            raise Unreadable("no code object")

    def _bytes(self, address: int) -> bytes:
        size = self._memory.word(address + self._offsets["bytes.ob_size"])
        if size > _TABLE_BYTES:
            raise Unreadable("a damaged bytes object")
        return self._memory.read(address + self._offsets["bytes.ob_sval"], size)

    def _text(self, address: int) -> str:
        offsets = self._offsets
        head = self._memory.read(address, offsets["str.asciiobject_size"])
        state = word(head + b"\0" * 8, offsets["str.state"]) >> self._state_shift
        bytes_each, encoding = _ENCODINGS.get(state & 7, (0, ""))
        size = word(head, offsets["str.length"]) * bytes_each
        if not bytes_each or not state & 8 or size > 4 * _TEXT_BYTES:
            raise Unreadable("a damaged string")
        at = address + offsets["str.asciiobject_size"] + (0 if state & 16 else _NOT_ASCII_BYTES)
        return self._memory.read(at, size).decode(encoding, "replace")
