"""Stack samples of another process, by py-spy's own command line: a window until SIGINT, or a dump.

A program of its own, started where py-spy cannot read a process: see ``sources/stacks/memory_reader.py``. ::

    record --pid PID --rate HZ --duration SECONDS --output FILE     a speedscope file, at SIGINT or when the time is up
    dump --pid PID                                                  all threads now, as JSON

What else py-spy would be told is what this does anyway: all threads, none is stopped, idle ones too, whole file names.
Exit code 1 and a message on stderr when the process cannot be read.
"""

import json
import os
import signal
import sys
import time
from typing import Any, Dict, List

from .debug_offsets import UnknownPython
from .memory import Unreadable
from .memory_window import MemoryReader, MemoryWindow, kernel_name

#: Frames of a stack and threads of a process: more than any program has that can be sampled in time.
_MAX_DEPTH = 1000
_MAX_THREADS = 4096
_OPTIONS = ("--pid", "--rate", "--duration", "--output")


def main(arguments: List[str]) -> int:
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
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    window, errors = MemoryWindow(reader), 0
    until_s, random = time.monotonic() + duration_s, time.monotonic_ns() | 1
    while time.monotonic() < until_s:
        try:
            window.sample(0)
        except Unreadable:
            if window.instants == 1:
                raise
            errors += 1  # it ends, or its list of threads changes
            if not os.path.exists("/proc/%d/maps" % reader.pid):
                break
        # at irregular instants: regular ones would beat against the steps
        random = (random * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        if signal.sigtimedwait({signal.SIGINT}, (0.5 + (random >> 32) / (1 << 32)) / rate_hz) is not None:
            break
    with open(output, "w", encoding="utf-8", errors="replace") as file:
        json.dump(window.content(), file)
    sys.stderr.write("Samples: %d Errors: %d\n" % (window.instants, window.failed + errors))


def _print_dump(reader: MemoryReader) -> None:
    threads: List[Dict[str, Any]] = []
    for thread in reader.stacks.sample():
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
    json.dump(threads, sys.stdout)


def _is_running(pid: int, tid: int) -> bool:
    try:
        with open("/proc/%d/task/%d/stat" % (pid, tid), "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False
