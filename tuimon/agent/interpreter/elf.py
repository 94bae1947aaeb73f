"""Where an ELF file has a section: 64 bit, little endian, which is all that Linux trainings run on."""

from __future__ import annotations

import os
from struct import Struct

_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_PROGRAM = Struct("<IIQQQQQQ")
_MAGIC = b"\x7fELF\x02\x01"
_LOADED = 1  # PT_LOAD
_PAGE = 4096


class Section:
    """A section; ``ahead``: how far it lies beyond the first byte of its file that is loaded."""

    __slots__ = ("ahead", "size")

    def __init__(self, ahead: int, size: int) -> None:
        self.ahead = ahead
        self.size = size


def find_section(path: str, name: bytes) -> Section | None:
    """The section of this name; None where the file has none. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _find(file, name)
    finally:
        os.close(file)


def _find(file: int, name: bytes) -> Section | None:
    raw = os.pread(file, _HEADER.size, 0)
    if len(raw) < _HEADER.size or not raw.startswith(_MAGIC):
        return None
    _, _, _, _, _, programs_at, sections_at, _, _, _, programs, _, sections, names = _HEADER.unpack(raw)
    table = os.pread(file, sections * _SECTION.size, sections_at)
    if len(table) < sections * _SECTION.size or names >= sections:
        return None
    texts = _SECTION.unpack_from(table, names * _SECTION.size)
    strings = os.pread(file, texts[5], texts[4])
    loads = os.pread(file, programs * _PROGRAM.size, programs_at)
    first = min((load[3] for load in _PROGRAM.iter_unpack(loads) if load[0] == _LOADED), default=0)
    for section in _SECTION.iter_unpack(table):
        if strings[section[0] : section[0] + len(name) + 1] == name + b"\0":
            return Section(section[3] - first // _PAGE * _PAGE, section[5])
    return None
