"""Queries NCCL's own watch over its ranks (RAS, since NCCL 2.24) for what is wrong, by its text protocol on loopback.

One process of a node listens on ``NCCL_RAS_ADDR`` (localhost:28028) and answers for all of the job:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from tuimon.proc.processes import environment

_PORT = 28028
_QUESTION = b"verbose status\n"
#: The answer is waited for so long in all (s): RAS gives each process five seconds, and the whole five more, and
#: reports what is wrong only then. NCCL's own client waits as long (src/ras/client.cc).
_ANSWER_S = 12.0
_CONNECT_S = 1.0
#: What is read of an answer, and what is kept of it.
_BYTES, _LINES, _CHARS = 256 << 10, 24, 200
#: Sections of the answer in which something is wrong; a section ends with the next one.
_SECTIONS = ("Errors", "Warnings")


def query_ras(pids: Iterable[int]) -> list[str]:
    """Lines on what is wrong, of whichever of these processes listens; empty where none does, or all is well."""
    for pid in pids:
        address = _listens(pid)
        if address is not None:
            return troubles(_answer(address))
    return []


def troubles(text: str) -> list[str]:
    """The lines of an answer's errors and warnings, and the rows of communicators that are not well."""
    return list(_troubles(text.splitlines()))[:_LINES]


def _troubles(lines: list[str]) -> Iterator[str]:
    section = ""
    for number, raw in enumerate(lines):
        line = raw.strip()
        underlined = number + 1 < len(lines) and set(lines[number + 1].strip()) == {"="}
        if underlined:
            section = line
        elif line and set(line) != {"="} and section in _SECTIONS:
            yield line[:_CHARS]


def _listens(pid: int) -> tuple[str, int] | None:
    """Where a process listens for RAS: nobody else's socket is queried."""
    import psutil  # noqa: PLC0415  (1.3 MB; only what hangs on NCCL is queried)

    port = _port(environment(pid).get("NCCL_RAS_ADDR", ""))
    try:
        for each in psutil.Process(pid).net_connections(kind="tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port:
                return each.laddr.ip, port
    except psutil.Error:
        return None
    return None


def _port(address: str) -> int:
    tail = address.rpartition(":")[2]
    return int(tail) if tail.isdecimal() and 0 < int(tail) < 1 << 16 else _PORT


def _answer(address: tuple[str, int]) -> str:
    """All that comes until the other side closes, within bounds; what has come, where it does not."""
    import socket  # noqa: PLC0415  (0.4 MB, as above)

    until_s = time.monotonic() + _ANSWER_S
    found = bytearray()
    try:
        with socket.create_connection(address, _CONNECT_S) as connection:
            connection.sendall(_QUESTION)
            while len(found) < _BYTES:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    break
                connection.settimeout(left_s)
                got = connection.recv(4096)
                if not got:
                    break
                found += got
    except OSError:  # refused, reset, or too slow
        pass
    return found.decode(errors="replace")
