"""The facts of a process that an injection needs, found without touching it.

Addresses of functions come from the ELF files that it has mapped (elf(5)). gdb could look them up, but would read the
symbols of all libraries while the process waits: 0.2 to 0.4 s with torch.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from tuimon.errors import CannotInject
from tuimon.launch.attached import user_name
from tuimon.proc import procfs
from tuimon.proc.processes import DELETED, PTRACE_IN_CONTAINER, has_torch

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


class MappedPart(NamedTuple):
    """A file's part in a process's memory."""

    start: int
    end: int
    offset: int  # in the file
    is_code: bool
    path: str


def parse_maps(raw: bytes) -> list[MappedPart]:
    """The files in /proc/PID/maps."""
    found = []
    for line in raw.splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith(b"/"):
            start, _, end = fields[0].partition(b"-")
            path = fields[5].decode("utf-8", "surrogateescape")
            found.append(MappedPart(int(start, 16), int(end, 16), int(fields[2], 16), b"x" in fields[1], path))
    return found


def find_functions(file: str, mapped: Iterable[MappedPart], names: Iterable[str]) -> dict[str, Function]:
    """The named functions of a mapped file, stripped or not, that lie in its mapped code.

    ``file``: where to read it. None are found if it is no 64-bit little-endian ELF file, or cannot be read.
    """
    mapped, wanted = list(mapped), {name.encode() for name in names}
    found: dict[str, Function] = {}
    with (
        suppress(OSError, ValueError),
        open(file, "rb") as handle,
        mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[:6] == b"\x7fELF\x02\x01":
            bias = _bias(content, mapped)
            for name, at, size in _functions(content, wanted):
                found[name.decode()] = Function(at + bias, at + bias + size)
    code = [(part.start, part.end) for part in mapped if part.is_code]
    return {name: at for name, at in found.items() if any(start <= at.start < at.end <= end for start, end in code)}


def _bias(content: mmap.mmap, mapped: list[MappedPart]) -> int:
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
        # also inside a longer name: linkers store common endings once
        at = {found.start(): name for name in wanted for found in re.finditer(re.escape(name + b"\0"), names)}
        for name, info, _, section, value, length in _SYMBOL.iter_unpack(table):
            if name in at and info & 0xF == _STT_FUNC and section:
                yield at[name], value, length


_LIBRARY = re.compile(r"/libpython3\.(\d+)t?\.so[\d.]*( \(deleted\))?$")
_PROGRAM = re.compile(r"/python3\.(\d+)t?( \(deleted\))?$")
_FOLDER = re.compile(r"/python3\.(\d+)t?/|\.cpython-3(\d+)t?-")
_C_LIBRARY = re.compile(r"/(libc|libpthread)(\.so\.6|-[\d.]+\.so)$")
#: The oldest Python that the agent runs in: 3.9.
_OLDEST_MINOR = 9
RUN_INSTEAD = "Or start it again under tuimon run, which needs none of this."


class Target(Struct, frozen=True):
    """A Python process with torch, of our own user."""

    pid: int
    minor: int  # of its Python 3
    python: tuple[MappedPart, ...]  # the file that holds the interpreter: libpython, or the program
    c_library: tuple[MappedPart, ...]

    @property
    def python_file(self) -> str:
        """A path at which the interpreter's file can be read."""
        path = self.python[0].path
        return self.file(path) if _LIBRARY.search(path) else f"/proc/{self.pid}/exe"

    def file(self, path: str) -> str:
        """A path at which a file that it has mapped can be read: its own path may name another file for us."""
        return f"/proc/{self.pid}/root{path}"


def examine(pid: int, agent: str) -> Target:
    """The process, if ``agent`` (the agent's folder) can be brought into it. Raises CannotInject."""
    uids = procfs.user_ids(pid)
    if not uids:
        raise CannotInject(f"there is no process {pid}", "List the running trainings: tuimon ps")
    if {*uids} != {os.geteuid()}:
        name = user_name(uids[0])
        raise CannotInject(
            f"process {pid} belongs to {name}, and code goes only into processes of your own",
            f"sudo -u {name} tuimon attach --inject {pid}",
        )
    status = procfs.read_fields(f"/proc/{pid}/status")
    tracer = status.get("TracerPid", "0")
    if tracer != "0":
        raise CannotInject(f"process {pid} is being traced by process {tracer}", "Detach that debugger, and try again.")
    if status.get("State", "").startswith(("T", "t")):
        raise CannotInject(f"process {pid} is stopped", f"kill -CONT {pid}, and try again.")
    raw = procfs.read_maps(pid)
    if not raw:
        raise CannotInject(f"the memory map of process {pid} may not be read", ALLOW_PTRACE)
    maps = parse_maps(raw)
    paths = {part.path for part in maps}
    found = next((match for path in paths if (match := _LIBRARY.search(path) or _PROGRAM.search(path))), None)
    found = found or next((match for path in paths if (match := _FOLDER.search(path))), None)
    if found is None:
        raise CannotInject(f"process {pid} runs no Python 3 that tuimon knows", RUN_INSTEAD)
    minor = int(next(filter(None, found.groups())))
    if minor < _OLDEST_MINOR:
        raise CannotInject(f"process {pid} runs Python 3.{minor}; the agent needs 3.{_OLDEST_MINOR}", RUN_INSTEAD)
    if any("/ld-musl-" in path for path in paths):
        raise CannotInject(f"process {pid} runs on musl, which tuimon was never tried with", RUN_INSTEAD)
    if not has_torch(pid):
        raise CannotInject(f"process {pid} has not imported torch yet", "Attach again once it trains.")
    _check_namespaces(pid)
    check_sees(pid, agent)
    return Target(pid, minor, python_mappings(pid, maps), tuple(part for part in maps if _C_LIBRARY.search(part.path)))


ALLOW_PTRACE = f"As root: sysctl kernel.yama.ptrace_scope=0. {PTRACE_IN_CONTAINER}. {RUN_INSTEAD}"


def python_mappings(pid: int, maps: list[MappedPart]) -> tuple[MappedPart, ...]:
    """The mappings of the interpreter's own file."""
    library = next((part.path for part in maps if _LIBRARY.search(part.path)), None)
    try:
        file = library or os.readlink(f"/proc/{pid}/exe")
    except OSError:
        raise CannotInject(f"the program of process {pid} may not be read", ALLOW_PTRACE) from None
    if library is not None and library.endswith(DELETED):
        raise CannotInject(f"the Python of process {pid} was replaced on disk since it started", RUN_INSTEAD)
    return tuple(part for part in maps if part.path == file)


def _check_namespaces(pid: int) -> None:
    """A ring is named by its process's pid and start, as that process reads them: they must be the same for us."""
    for kind in ("pid", "time"):
        try:
            same = os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
        except PermissionError:
            raise CannotInject(f"the namespaces of process {pid} may not be read", ALLOW_PTRACE) from None
        except OSError:  # an old kernel, or the process has ended
            continue
        if not same:
            inner = (procfs.read_fields(f"/proc/{pid}/status").get("NSpid", "").split() or ["PID"])[-1]
            raise CannotInject(
                f"process {pid} is in another {kind} namespace, as in a container: its markers would not be found",
                f"Attach from in there, with tuimon installed: tuimon attach --inject {inner}",
            )


def shared(pid: int, folders: Iterable[str]) -> list[str]:
    """The folders that are the same for the process; for one that is still to be made, its parent counts.

    Raises CannotInject when there is none.
    """
    folders = list(folders)
    found = [folder for folder in folders if _sees(pid, _existing(folder))]
    if not found:
        own = " and ".join(map(_existing, folders))
        raise CannotInject(
            f"process {pid} has its own {own}: what it writes there cannot be seen from here",
            "Install tuimon where the training runs, and attach from there.",
        )
    return found


def _existing(folder: str) -> str:
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def _sees(pid: int, path: str) -> bool:
    """True if a path leads the process to the same file as us."""
    try:
        theirs = os.stat(f"/proc/{pid}/root{path}")
    except PermissionError:
        raise CannotInject(f"the files of process {pid} may not be read", ALLOW_PTRACE) from None
    except OSError:
        return False
    return os.path.samestat(theirs, os.stat(path))


def check_sees(pid: int, agent: str) -> None:
    """The agent's folder must be the same one for the process: a container has other files."""
    if not _sees(pid, agent):
        raise CannotInject(
            f"process {pid} does not see the files of this tuimon: it is in a container, or has another root",
            "Install tuimon where the training runs, and attach from there.",
        )


#: gdb stops threads one by one, and inspects each while all stand still. Measured with gdb 13 on two cores: 0.05 s with
#: one thread, 0.15 s with 500, 0.3 to 0.4 s with 1,000, 0.9 s with 2,000, 1.6 s with 3,000; with 5,000 it had to be
#: killed after 15 s, in its call, and the process with it. Trainings on eight GPUs have some hundred threads a process.
THREADS_LIMIT = 1_000
#: Cost of a thread at least (s): 0.3 s with 1,000.
_THREAD_S = 0.0003
#: How often each thread's state is read: a thread in uninterruptible sleep each time may stay there. A read from a disk
#: takes milliseconds, for which gdb can wait.
_LOOKS = 10
_BETWEEN_LOOKS_S = 0.05


def check_threads(pid: int) -> None:
    """Raise CannotInject if gdb would hold the process for long."""
    count = len(procfs.thread_ids(pid))
    if count > THREADS_LIMIT:
        raise CannotInject(
            f"process {pid} has {count:,} threads: gdb would stop it for at least {count * _THREAD_S:.1f} s"
            f" (the limit is {THREADS_LIMIT:,} threads)",
            RUN_INSTEAD,
        )
    stuck = uninterruptible_threads(pid)
    for _ in range(_LOOKS):
        if not stuck:
            return
        time.sleep(_BETWEEN_LOOKS_S)
        stuck &= uninterruptible_threads(pid)
    if stuck:
        raise CannotInject(
            f"thread {min(stuck)} of process {pid} is in uninterruptible sleep (D): gdb would hold all others until it"
            " comes back from the kernel",
            f"It waits for a disk, a network file system or a driver: try again later. {RUN_INSTEAD}",
        )


def uninterruptible_threads(pid: int) -> set[int]:
    found = {tid: procfs.read_thread_stat(pid, tid) for tid in procfs.thread_ids(pid)}
    return {tid for tid, stat in found.items() if stat is not None and stat.state == "D"}
