"""``py-spy dump``: all threads of a process at one instant."""

from __future__ import annotations

import subprocess

import msgspec
from msgspec.structs import replace

from tuimon.proc.pthreads import os_ids
from tuimon.sources.stacks.pyspy.recorder import environment

#: py-spy's message if a stack changed while it was read: of a busy process about one dump in a hundred.
_TORN = "Failed to get stack traces"
#: How often one is tried.
_ATTEMPTS = 3


class DumpFrame(msgspec.Struct, frozen=True, rename={"function": "name", "file": "filename"}):
    """A frame of ``py-spy dump --json``."""

    function: str
    file: str
    line: int


class DumpThread(msgspec.Struct, frozen=True, rename={"tid": "os_thread_id"}):
    """One thread at one instant; ``frames`` leaf first."""

    thread_id: int
    active: bool
    owns_gil: bool
    frames: list[DumpFrame]
    tid: int | None = None
    thread_name: str | None = None


class DumpError(Exception):
    """The process could not be read; the text is py-spy's."""


_dump = msgspec.json.Decoder(list[DumpThread])


def dump(binary: str, pid: int, timeout_s: float = 5.0) -> list[DumpThread]:
    """All threads at one instant, also who is active and who holds the GIL, which only this has. Raises DumpError."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _dump_once(binary, pid, timeout_s)
        except DumpError as error:
            if _TORN not in str(error):
                raise
    return _dump_once(binary, pid, timeout_s)


def _dump_once(binary: str, pid: int, timeout_s: float) -> list[DumpThread]:
    try:
        done = subprocess.run(
            [binary, "dump", "--pid", str(pid), "--nonblocking", "--full-filenames", "--json"],
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise DumpError(done.stderr.decode("utf-8", "replace"))
        threads = _dump.decode(done.stdout)
    except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DumpError(str(error)) from error
    ids = os_ids(pid, [thread.thread_id for thread in threads if thread.tid is None])
    return [replace(each, tid=ids.get(each.thread_id)) if each.tid is None else each for each in threads]
