"""How a process and its child are related: whether the child was forked, and whether the parent waits for it."""

from __future__ import annotations

from tuimon.proc.procfs import read_bytes

#: Addresses of the arguments in memory, among the fields of /proc/PID/stat after the name (arg_start, proc(5)).
_ARGUMENTS_FIELD = 45


def is_fork_of(child: int, parent: int) -> bool:
    """True if a child is a copy of its parent: same arguments at the same place, which differs in each new program.

    If the place may not be read, equal arguments are taken for a copy.
    """
    if read_bytes(f"/proc/{child}/cmdline") != read_bytes(f"/proc/{parent}/cmdline"):
        return False
    places = _arguments_at(child), _arguments_at(parent)
    return 0 in places or places[0] == places[1]


def waits_for_child(pid: int) -> bool:
    """True if a process's main thread waits in the kernel for a child to end; False if that may not be read."""
    return read_bytes(f"/proc/{pid}/wchan") == b"do_wait"


def _arguments_at(pid: int) -> int:
    fields = (read_bytes(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return int(fields[_ARGUMENTS_FIELD]) if len(fields) > _ARGUMENTS_FIELD else 0
