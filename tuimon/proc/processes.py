"""Whole processes, for readers that come once a second or less often; and which of them are Python.

A Python is recognised by the program's name, by libpython, or by what is linked into the program.
"""

from __future__ import annotations

import glob
import mmap
import os
import re
import time
from functools import cache

from tuimon.bounds import Latest
from tuimon.proc import procfs
from tuimon.proc.procfs import read_bytes

#: The kernel adds this to the path of an open file, such as a running program, that was replaced or removed.
DELETED = " (deleted)"
#: Index of the arguments' start address in the fields of /proc/PID/stat after the name (arg_start, proc(5)).
_ARGUMENTS_FIELD = 45
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
#: How a container gets the right to read the stacks of its processes.
PTRACE_IN_CONTAINER = (
    "Start the container with --cap-add SYS_PTRACE (Kubernetes: securityContext.capabilities.add: [SYS_PTRACE])"
)
#: The vendors of PCI devices: a container sees those of the machine, whether or not it may use them.
VENDORS = "/sys/bus/pci/devices/*/vendor"
_NVIDIA = b"0x10de"


def in_container() -> bool:
    """True if this process runs in a container."""
    if any(os.path.exists(path) for path in _CONTAINER_FILES) or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    cgroup = procfs.read_bytes("/proc/1/cgroup") or b""
    return any(word in cgroup for word in (b"docker", b"kubepods", b"lxc"))


def has_nvidia_gpu() -> bool:
    """True if the machine has a PCI device of NVIDIA's, such as a GPU, with or without a driver."""
    return any((procfs.read_bytes(path) or b"").strip() == _NVIDIA for path in glob.iglob(VENDORS))


def is_fork_of(child: int, parent: int) -> bool:
    """True if a child is a copy of its parent: same arguments at the same address, which differs in a new program.

    If the address may not be read, equal arguments suffice.
    """
    if read_bytes(f"/proc/{child}/cmdline") != read_bytes(f"/proc/{parent}/cmdline"):
        return False
    places = _arguments_at(child), _arguments_at(parent)
    return 0 in places or places[0] == places[1]


def waits_for_child(pid: int) -> bool:
    """True if a process's main thread waits in the kernel for a child to end; False if unreadable."""
    return read_bytes(f"/proc/{pid}/wchan") == b"do_wait"


def _arguments_at(pid: int) -> int:
    fields = (read_bytes(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return int(fields[_ARGUMENTS_FIELD]) if len(fields) > _ARGUMENTS_FIELD else 0


def is_alive(pid: int, start_ticks: int | None) -> bool:
    """True if this very process, not a later one with the same pid, exists now and is not a zombie."""
    stat = procfs.read_process_stat(pid)
    if stat is None:
        procfs.start_ticks(pid)  # raises if we have no file handle left, which does not mean that the process has ended
    return stat is not None and stat.state not in "ZX" and start_ticks in (None, stat.start_ticks)


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty for kernel threads, zombies and processes that are gone."""
    raw = procfs.read_whole(f"/proc/{pid}/cmdline")
    between = b"\0" if raw.endswith(b"\0") else b" "  # a program that rewrites its line may use spaces
    words = raw.removesuffix(between).split(between)
    if len(words) == 1:
        words = words[0].split(b" ")
    return encodable([os.fsdecode(word) for word in words])


def encodable(words: list[str]) -> list[str]:
    """Arguments as text that can be encoded, without the padding that setproctitle leaves at the end."""
    last = max((i for i, word in enumerate(words) if word), default=-1)
    return [os.fsencode(word).decode("utf-8", "replace") for word in words[: last + 1]]


def shortened(words: list[str]) -> list[str]:
    """The arguments, cut to 2,000 characters in all."""
    out: list[str] = []
    room = 2000  # records are bounded
    for text in words:
        out.append(text[:room])
        room -= len(text)
        if room <= 0:
            break
    return out


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started; empty if it may not be read, and during an exec."""
    pairs = (pair.partition(b"=") for pair in procfs.read_whole(f"/proc/{pid}/environ").split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, found, value in pairs if name and found}


def program_name(pid: int) -> str:
    """Base name of the program that a process runs; "" if it may not be read."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(DELETED))
    except PermissionError:  # of another user
        words = command_line(pid)
        return os.path.basename(words[0]) if words and os.path.isabs(words[0]) else ""
    except OSError:
        return ""


def start_unix_s(start_ticks: int) -> float:
    """When a process started, in seconds since the epoch, to 10 ms."""
    return _boot_unix_s() + start_ticks / procfs.TICKS_PER_S


@cache
def _boot_unix_s() -> float:
    """When the machine was booted; read only once, so that a later change of the clock moves no start time."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


_PROGRAM = re.compile(r"(python|pypy)[\d.]*[a-z]*$")
#: libpython, or an extension module that only a Python loads.
_LIBRARY = re.compile(rb"/lib(python|pypy)\d[\w.]*\.so|\.(cpython|pypy)-\d[\w-]*\.so$", re.MULTILINE)
#: Files of a Python without the GIL: ``lib/python3.14t/``, ``libpython3.14t.so``, ``_json.cpython-314t-x86_64….so``.
_WITHOUT_GIL = re.compile(rb"/(lib)?python3\.\d+t[./]|\.cpython-3\d+t-")
#: Variables that every Python reads, and hardly any other program: a Python's binary contains their names.
_VARIABLES = (b"PYTHONHOME", b"PYTHONDONTWRITEBYTECODE")
#: Larger programs are not searched: at 0.5 ms a MB it would take longer than 0.1 s.
_PROGRAM_BYTES = 256 << 20


def is_name(program: str) -> bool:
    """True if a program's base name is one of Python's: ``python3.12``."""
    return _PROGRAM.match(program) is not None


def is_python(pid: int) -> bool:
    """True if a process is a Python interpreter or has one inside; False if unknown."""
    program = program_name(pid)
    if is_name(program):
        return True
    return bool(program) and (_LIBRARY.search(procfs.read_maps(pid)) is not None or _is_linked_into(pid))


def has_torch(pid: int) -> bool:
    """True if a process has imported torch; False if unknown."""
    return b"/libtorch_python" in procfs.read_maps(pid)


def is_free_threaded(pid: int) -> bool:
    """True if a process runs a Python built without the GIL (python3.14t)."""
    program = program_name(pid)
    if program.startswith("python") and program.endswith("t"):
        return True
    return _WITHOUT_GIL.search(procfs.read_maps(pid)) is not None


#: The result for each program that was searched, by device, inode and time of change.
_searched = Latest[tuple[int, int, int], bool]()


def _is_linked_into(pid: int) -> bool:
    """True if a program has a Python linked into it. Takes 1 ms for 2 MB, once per program."""
    path = f"/proc/{pid}/exe"
    try:
        found = os.stat(path)
        key = (found.st_dev, found.st_ino, found.st_mtime_ns)
        if key not in _searched:
            _searched[key] = False
            if found.st_size <= _PROGRAM_BYTES:
                with open(path, "rb") as program, mmap.mmap(program.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    _searched[key] = all(content.find(text) >= 0 for text in _VARIABLES)
        return _searched[key]
    except (OSError, ValueError):  # ValueError: an empty file
        return False
