"""Stack samples of another process, by py-spy's own command line: a window until SIGINT, or a dump.

A program of its own, for a process that py-spy cannot read: see ``sources/stacks/pyspy/memory_reader.py``. ::

    record --pid PID --rate HZ --duration SECONDS --output FILE     a speedscope file, at SIGINT or when the time is up
    dump --pid PID                                                  all threads now, as JSON

py-spy's other options are always on here: all threads, none is stopped, idle ones too, whole file names.
Exit code 1 and a message on stderr when the process cannot be read.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal itself takes 10 ms to import
import os
import sys
import time
from _json import encode_basestring_ascii  # json takes 15 ms

from .debug_offsets import UnknownPython
from .memory import Unreadable
from .memory_window import MemoryReader, MemoryWindow, kernel_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Frames of a stack and threads of a process: more than any program has that can be sampled in time.
_MAX_DEPTH = 1000
_MAX_THREADS = 4096
#: A dump in which a stack changed too fast is taken again, so often at most: of a busy process about one in a hundred.
_DUMPS = 5
_OPTIONS = ("--pid", "--rate", "--duration", "--output")


def main(arguments: list[str]) -> int:
    """Run it; the exit code."""
    options = {flag: arguments[arguments.index(flag) + 1] for flag in _OPTIONS if flag in arguments}
    try:
        reader = MemoryReader(int(options["--pid"]), _MAX_DEPTH, _MAX_THREADS)
        if arguments[0] == "dump":
            _print_dump(reader)
        else:
            _record(reader, float(options["--rate"]), float(options["--duration"]), options["--output"])
    except PermissionError as error:
        return _fail("Permission denied: %s" % error)
    except (OSError, UnknownPython, Unreadable) as error:
        return _fail(str(error))
    return 0


def _fail(message: str) -> int:
    sys.stderr.write("Error: %s\n" % message)
    return 1


def _record(reader: MemoryReader, rate_hz: float, duration_s: float, output: str) -> None:
    _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGINT})
    window, errors = MemoryWindow(reader), 0
    sys.stdout.write("Sampling process %d\n" % reader.pid)
    sys.stdout.flush()
    until_s, random = time.monotonic() + duration_s, time.monotonic_ns() | 1
    while time.monotonic() < until_s:
        try:
            window.sample(0)
        except (OSError, Unreadable):
            if window.instants == 1:
                raise
            errors += 1  # it ends, or its list of threads changes
            if not os.path.exists("/proc/%d/maps" % reader.pid):
                break
        # at irregular instants: regular ones would beat against the steps
        random = (random * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        if _signal.sigtimedwait({_signal.SIGINT}, (0.5 + (random >> 32) / (1 << 32)) / rate_hz) is not None:
            break
    with open(output, "w", encoding="utf-8", errors="replace") as file:
        file.write(_json(window.content()))
    sys.stderr.write("Samples: %d Errors: %d\n" % (window.instants, window.failed + errors))


def _print_dump(reader: MemoryReader) -> None:
    threads: list[dict[str, Any]] = []
    with reader.memory:
        found = list(reader.stacks.sample())
        for _ in range(_DUMPS - 1):
            if all(thread.places is not None for thread in found):
                break
            found = list(reader.stacks.sample())
    for thread in found:
        frames = [
            {"name": code.name, "filename": code.file, "line": code.line(unit)} for code, unit in thread.places or ()
        ]
        threads.append(
            {
                "thread_id": thread.ident,
                "os_thread_id": thread.tid,
                "thread_name": kernel_name(reader.pid, thread.tid),
                "active": _is_running(reader.pid, thread.tid),
                "owns_gil": False,
                "frames": frames,
            }
        )
    sys.stdout.write(_json(threads))


def _is_running(pid: int, tid: int) -> bool:
    try:
        with open("/proc/%d/task/%d/stat" % (pid, tid), "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False


def _json(value: Any) -> str:
    """Like ``json.dumps``, for strings, whole numbers, and lists and dicts of them."""
    if isinstance(value, str):
        return str(encode_basestring_ascii(value))
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (_json(key), _json(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(map(_json, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
