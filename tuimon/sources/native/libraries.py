"""The executable memory of a process: which library an address lies in."""

from __future__ import annotations

import time
from bisect import bisect_right

from tuimon.native_code import GENERATED, NUMBA, UNKNOWN, library_of
from tuimon.proc.procfs import read_maps

#: After an address in none that is known, what is mapped is read again; in vain, the next time after twice as long (s).
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class Libraries:
    """The libraries of one process, as it has mapped them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begins: list[int] = []
        self._mapped: list[tuple[int, str]] = []  # end and name of each
        self._due_s, self._pause_s = 0.0, _FIRST_PAUSE_S

    def at(self, address: int) -> str:
        """The name of the library that an address lies in."""
        name = self._find(address)
        if name is None and (now_s := time.monotonic()) >= self._due_s:
            self.replace(read_maps(self._pid))
            name = self._find(address)
            self._pause_s = _FIRST_PAUSE_S if name is not None else min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._due_s = now_s + self._pause_s
        return name or UNKNOWN.name

    def _find(self, address: int) -> str | None:
        at = bisect_right(self._begins, address) - 1
        return self._mapped[at][1] if at >= 0 and address < self._mapped[at][0] else None

    def replace(self, maps: bytes) -> None:
        """Take the lines of /proc/PID/maps, in order of their addresses, for what is mapped now."""
        generated = (NUMBA if b"libllvmlite" in maps else GENERATED).name
        self._begins.clear()
        self._mapped.clear()
        for line in maps.splitlines():
            addresses, rights, _, _, _, *path = line.split(maxsplit=5)
            if b"x" in rights:
                begin, end = (int(address, 16) for address in addresses.split(b"-"))
                file = path[0].decode("utf-8", "replace").removesuffix(" (deleted)") if path else ""
                is_file = file.startswith(("/", "[vdso]")) and not file.startswith(("/memfd:", "/dev/zero"))
                self._begins.append(begin)
                self._mapped.append((end, library_of(file) if is_file else generated))
