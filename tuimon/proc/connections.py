"""The file that a thread blocked in the kernel reads from or writes to, and the process at its other end.

Formats: proc_pid_syscall(5), Documentation/networking/proc_net_tcp.rst and include/uapi/linux/unix_diag.h in the Linux
sources. Files that may not be read are unknown, never an exception.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from contextlib import suppress

from tuimon.proc import procfs

#: System calls that wait for the other end of their first argument: read, write, readv, writev, recvfrom, sendto,
#: recvmsg, sendmsg; and those that sleep for a time: nanosleep, clock_nanosleep (arch/*/include/generated/uapi).
_TRANSFERS = {"x86_64": (0, 1, 19, 20, 44, 45, 46, 47), "aarch64": (63, 64, 65, 66, 206, 207, 211, 212)}
_SLEEPS = {"x86_64": (35, 230), "aarch64": (101, 115)}
_ESTABLISHED, _LISTENING = b"01", b"0A"

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_NLM_F_REQUEST, _UDIAG_SHOW_PEER, _UNIX_DIAG_PEER = 1, 4, 2
#: Sizes of struct nlmsghdr and struct unix_diag_msg.
_HEADER_BYTES, _UNIX_MESSAGE_BYTES = 16, 16


def blocked_on(pid: int, tid: int) -> str | None:
    """The pipe or connection on whose transfer a thread is blocked: ``socket:[4526398]``; None if on none."""
    words = (procfs.read_bytes(f"/proc/{pid}/task/{tid}/syscall", 256) or b"").split()
    if len(words) < 2 or not words[0].isdigit() or int(words[0]) not in _TRANSFERS.get(os.uname().machine, ()):
        return None
    link = _link(f"/proc/{pid}/fd/{int(words[1], 16)}")
    return link if link.startswith(("socket:", "pipe:")) else None


def is_sleeping(pid: int) -> bool:
    """True if a thread of a process sleeps for a set time; also if that may not be read."""
    calls = [procfs.read_bytes(f"/proc/{pid}/task/{tid}/syscall", 256) for tid in procfs.thread_ids(pid)]
    sleeps = _SLEEPS.get(os.uname().machine, ())
    return any(not raw or (raw.split()[0].isdigit() and int(raw.split()[0]) in sleeps) for raw in calls)


def wake_ups(pid: int, tid: int) -> int | None:
    """How often a thread has gone to sleep: while the number stays the same, it has not been woken."""
    found = procfs.read_fields(f"/proc/{pid}/task/{tid}/status").get("voluntary_ctxt_switches")
    return int(found) if found else None


def other_ends(pid: int, link: str, among: Iterable[int]) -> set[int] | None:
    """The processes of ``among`` at the other end of the pipe or connection that ``pid`` waits for; empty if none.

    None if another process may be: on another machine, in another network namespace, or simply not in ``among``.
    """
    holders = _holders({pid, *among})
    if link.startswith("pipe:"):
        everybody = _holders(procfs.pids()).get(link, set())
        return {*holders.get(link, ()), pid} if everybody <= {pid, *among} else None
    inode = link.removeprefix("socket:[").removesuffix("]")
    peer = _tcp_peer(pid, inode) or _unix_peer(inode)
    if peer is None:
        return None
    found = holders.get(f"socket:[{peer}]", set())
    return found if found and _holders(procfs.pids()).get(f"socket:[{peer}]", set()) <= found else None


def has_other_connections(pid: int, among: Iterable[int]) -> bool:
    """True if a process is connected to one that is not in ``among``: it may be waiting for that one."""
    own = {link for link, holders in _holders([pid]).items() if holders and link.startswith("socket:")}
    inside = {link for link, holders in _holders(among).items() if holders}
    for row in _tcp_rows(pid):
        if row[3] == _ESTABLISHED and f"socket:[{row[9].decode()}]" in own:
            peer = _tcp_peer(pid, row[9].decode())
            if peer is None or f"socket:[{peer}]" not in inside:
                return True
    return False


def listens(pid: int) -> bool:
    """True if a process accepts TCP connections."""
    own = _holders([pid])
    return any(row[3] == _LISTENING and f"socket:[{row[9].decode()}]" in own for row in _tcp_rows(pid))


def _holders(pids: Iterable[int]) -> dict[str, set[int]]:
    """The processes that hold each pipe or socket, of these that may be read."""
    found: dict[str, set[int]] = {}
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for number in numbers:
            link = _link(f"/proc/{pid}/fd/{number}")
            if link.startswith(("socket:", "pipe:")):
                found.setdefault(link, set()).add(pid)
    return found


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _tcp_rows(pid: int) -> list[list[bytes]]:
    """The connections in a process's network namespace; fields 1 to 3 of a row are both addresses and the state."""
    rows: list[list[bytes]] = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            lines = procfs.read_whole(f"/proc/{pid}/net/{name}").splitlines()[1:]
            rows += [fields for line in lines if len(fields := line.split()) > 9]
    return rows


def _tcp_peer(pid: int, inode: str) -> str | None:
    """The inode of the socket at a connection's other end; before it is accepted, of the listening socket."""
    rows = _tcp_rows(pid)
    own = next((row for row in rows if row[9] == inode.encode() and row[3] == _ESTABLISHED), None)
    if own is None:
        return None
    other = next((row for row in rows if (row[1], row[2]) == (own[2], own[1])), None)
    if other is not None and other[9] == b"0":
        port = own[2].rpartition(b":")[2]
        other = next((row for row in rows if row[3] == _LISTENING and row[1].rpartition(b":")[2] == port), None)
    return other[9].decode() if other is not None else None


def _unix_peer(inode: str) -> str | None:
    """Like ``_tcp_peer`` for a Unix socket, as the kernel's socket monitoring has it (sock_diag(7))."""
    import socket  # noqa: PLC0415  (0.4 MB, and only a hang needs it)

    request = struct.pack(
        "=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, int(inode), _UDIAG_SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF
    )
    head = struct.pack("=IHHII", _HEADER_BYTES + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(head + request)
            answer = kernel.recv(4096)
    except OSError:
        return None
    at = _HEADER_BYTES + _UNIX_MESSAGE_BYTES
    if len(answer) < at or struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return None
    while at + 4 <= len(answer):
        length, kind = struct.unpack_from("=HH", answer, at)
        if kind == _UNIX_DIAG_PEER and length >= 8:
            return str(struct.unpack_from("=I", answer, at + 4)[0])
        at += max(4, (length + 3) & ~3)
    return None
