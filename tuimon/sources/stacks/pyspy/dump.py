"""``py-spy dump``: all threads of a process at one instant; of a Python without a GIL our own reader's."""

from __future__ import annotations

import subprocess

import msgspec

from tuimon.proc.pythons import is_free_threaded
from tuimon.sources.stacks.pyspy import memory_reader
from tuimon.sources.stacks.pyspy.recorder import environment

#: What py-spy says where a stack changed while it was read: of a busy process about one dump in a hundred.
_TORN = "Failed to get stack traces"
#: How often one is tried.
_ATTEMPTS = 3


class DumpFrame(msgspec.Struct, frozen=True):
    """A frame as ``py-spy dump --json`` names it."""

    name: str
    filename: str
    line: int


class DumpThread(msgspec.Struct, frozen=True):
    """One thread at one instant; ``frames`` leaf first."""

    thread_id: int
    active: bool
    owns_gil: bool
    frames: list[DumpFrame]
    os_thread_id: int | None = None
    thread_name: str | None = None


class DumpError(Exception):
    """The process could not be read; the text is py-spy's, or our reader's."""


_dump = msgspec.json.Decoder(list[DumpThread])


def dump(binary: str, pid: int, timeout_s: float = 5.0) -> list[DumpThread]:
    """All threads at one instant, also who is active and who holds the GIL, which only this has. Raises DumpError."""
    try:
        return _whole_dump(binary, pid, timeout_s)
    except DumpError:
        if not is_free_threaded(pid):
            raise
    return _dump_by(memory_reader.command(), pid, timeout_s)


def _whole_dump(binary: str, pid: int, timeout_s: float) -> list[DumpThread]:
    for _ in range(_ATTEMPTS - 1):
        try:
            return _dump_by((binary,), pid, timeout_s)
        except DumpError as error:
            if _TORN not in str(error):
                raise
    return _dump_by((binary,), pid, timeout_s)


def _dump_by(program: tuple[str, ...], pid: int, timeout_s: float) -> list[DumpThread]:
    try:
        done = subprocess.run(
            [*program, "dump", "--pid", str(pid), "--nonblocking", "--full-filenames", "--json"],
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise DumpError(done.stderr.decode("utf-8", "replace"))
        return _dump.decode(done.stdout)
    except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DumpError(str(error)) from error
