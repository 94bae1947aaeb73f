"""Addresses of functions in a process, from the ELF files that it has mapped (elf(5)).

gdb could look them up, but would read the symbols of all libraries while the process waits: 0.2 to 0.4 s with torch.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from typing import NamedTuple

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PT_LOAD = 1
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_STT_FUNC = 2


class Function(NamedTuple):
    """The first address of a function in a process, and the one after its end."""

    start: int
    end: int


class Mapping(NamedTuple):
    """A file's part in a process's memory."""

    start: int
    end: int
    offset: int  # in the file
    is_code: bool
    path: str


def parse_maps(raw: bytes) -> list[Mapping]:
    """The files in /proc/PID/maps."""
    found = []
    for line in raw.splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith(b"/"):
            start, _, end = fields[0].partition(b"-")
            path = fields[5].decode("utf-8", "surrogateescape")
            found.append(Mapping(int(start, 16), int(end, 16), int(fields[2], 16), b"x" in fields[1], path))
    return found


def find_functions(file: str, mapped: Iterable[Mapping], names: Iterable[str]) -> dict[str, Function]:
    """The named functions of a mapped file, stripped or not, that lie in its mapped code.

    ``file``: where to read it. Raises OSError, ValueError when it is no 64-bit little-endian ELF file.
    """
    mapped = list(mapped)
    wanted = {name.encode() for name in names}
    with open(file, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{file} is no ELF file of this machine")
        bias = _bias(content, mapped)
        found = {name.decode(): Function(at + bias, at + bias + size) for name, at, size in _functions(content, wanted)}
    code = [(part.start, part.end) for part in mapped if part.is_code]
    return {name: at for name, at in found.items() if any(start <= at.start < at.end <= end for start, end in code)}


def _bias(content: mmap.mmap, mapped: list[Mapping]) -> int:
    """The offset that is added to the file's addresses: of its first segment, less the one in its header."""
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    for number in range(count):
        kind, _, in_file, address, *_ = _SEGMENT.unpack_from(content, offset + number * size)
        if kind == _PT_LOAD:
            page = in_file & ~0xFFF
            starts = [part.start for part in mapped if part.offset == page]
            if starts:
                return min(starts) - int(address - (in_file - page))
    raise ValueError("no segment is mapped")


def _functions(content: mmap.mmap, wanted: set[bytes]) -> Iterable[tuple[bytes, int, int]]:
    (offset,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    sections = [_SECTION.unpack_from(content, offset + number * size) for number in range(count)]
    for _, kind, _, _, start, size, link, *_ in sections:
        if kind not in (_SHT_SYMTAB, _SHT_DYNSYM) or link >= len(sections):
            continue
        names_at, names_length = sections[link][4], sections[link][5]
        names = content[names_at : names_at + names_length]
        table = content[start : start + size - size % _SYMBOL.size]
        at = {place: name for name in wanted for place in _places(names, name + b"\0")}
        for name, info, _, section, value, length in _SYMBOL.iter_unpack(table):
            if name in at and info & 0xF == _STT_FUNC and section:
                yield at[name], value, length


def _places(text: bytes, part: bytes) -> Iterable[int]:
    """The offsets at which a string begins, also inside another one: linkers store common endings once."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)
