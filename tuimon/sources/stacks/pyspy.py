"""Runs py-spy as a child process: windows of stack samples, and dumps of all threads at one instant.

No window leaves anything behind: its file is an anonymous one that py-spy opens through /proc/self/fd, and should
tuimon be killed, py-spy ends by itself a little after the window would have."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tuimon.proc import procfs
from tuimon.proc.procfs import os_ids
from tuimon.proc.ring_facts import RawFrame
from tuimon.sources.stacks.speedscope import SampledThread, WindowSamples, bare_name, parse_speedscope

#: A core was free if fewer threads than there are cores were runnable, in nearly all of the latest samples: our choice.
_SAMPLES = 32
_CROWDED_RATIO = 0.2


class Cores:
    """How crowded the cores have been lately, by how many threads were runnable in each sample.

    If no core is free, py-spy runs on the core of the thread that it samples. There it stops that thread for the time
    of a sample, 0.3 to 0.5 ms (it takes short turns: ``take_short_turns``). On another core it would take that time
    from threads that compute together on all cores. Phases in which they do would get longer, and a phase in which the
    thread works alone would too often be over when its stack is read: its share of 0.37 to 0.39 was measured as 0.21 to
    0.24 (steps of 4 ms, two cores), and as 0.37 to 0.39 on the thread's own core. With cores to spare py-spy takes none
    from anybody, and stays where it is.
    """

    def __init__(self, number: int | None = None) -> None:
        """``number``: of cores that may be used."""
        self._number = number if number is not None else len(os.sched_getaffinity(0))
        self._full: deque[bool] = deque(maxlen=_SAMPLES)

    def sample(self) -> None:
        """Count the threads that now run or wait for a core, except tuimon's own."""
        words = (procfs.read_bytes("/proc/loadavg", 128) or b"").split()
        runnable = words[3].partition(b"/")[0] if len(words) > 3 else b""
        if runnable.isdigit():
            self._full.append(int(runnable) - 1 >= self._number)

    @property
    def are_crowded(self) -> bool:
        """True if no core was free in many of the latest samples."""
        return sum(self._full) > _CROWDED_RATIO * len(self._full)


def move(sampler: int, pid: int) -> None:
    """Put all threads of the process ``sampler`` on the core that the main thread of ``pid`` is on now, if they may."""
    thread = procfs.read_thread_stat(pid, pid)
    if thread is None or thread.core is None:
        return
    for tid in procfs.thread_ids(sampler):
        with suppress(OSError):  # it has ended, or may not use that core
            os.sched_setaffinity(tid, {thread.core})


_OUTPUT_FD = 3
_ERRORS = re.compile(r"Samples: \d+ Errors: (\d+)")


def find() -> str | None:
    """The py-spy next to tuimon's own interpreter, on PATH, or where it was installed; never by a relative path."""
    folders = [os.path.dirname(sys.executable), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    paths = chain((os.path.join(folder, "py-spy") for folder in folders), _installed())
    usable = (path for path in paths if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK))
    return next(usable, None)


def _installed() -> Iterator[str]:
    """The paths of py-spy in packages that tuimon can import."""
    from importlib import metadata  # noqa: PLC0415  (1.4 MB; mostly it is next to the interpreter)

    for package in metadata.distributions(name="py-spy"):
        yield str(package.locate_file("bin/py-spy"))  # pip install --target: its RECORD says ../../bin, where it is not
        yield from (str(file.locate()) for file in package.files or () if file.name == "py-spy")


def environment() -> dict[str, str]:
    """The environment for py-spy: ours, without variables that change its messages."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("RUST_")}
    env["LC_ALL"] = "C"
    return env


class EndedWindow(Struct, frozen=True):
    """A window that has ended. ``samples`` is None if py-spy failed: ``message`` is then its own message."""

    pid: int
    window_s: float
    until_s: float  # monotonic time of its last sample
    cpu_s: float
    samples: WindowSamples | None
    failed: int = 0
    message: str = ""
    interrupted: bool = False  # SIGINT came before py-spy had started to sample


class PySpyRecording(Struct):
    """A py-spy child that samples one process until it is stopped."""

    pid: int
    started_s: float
    due_s: float  # when to stop it
    latest_s: float  # when it ends by itself
    child: int
    _output: int
    messages: int
    _most_cpu_s: float = math.inf  # the window ends early once py-spy has used more
    _silent_s: float | None = None  # when it was due to end but had not begun to sample
    _stopped_s: float | None = None

    #: A child that has not written its file this long after SIGINT is killed.
    STOP_TIMEOUT_S = 5.0

    @classmethod
    def start(
        cls,
        binary: str,
        pid: int,
        rate_hz: int,
        window_s: float,
        *,
        gil: bool = False,
        most_cpu_s: float = math.inf,
    ) -> PySpyRecording:
        """Begin a window; ``gil``: only of the thread that holds the GIL. Raises OSError when it does not start.

        It ends early once it has used ``most_cpu_s``: threads may have come, and each makes a sample dearer.
        """
        output = os.memfd_create("tuimon-stacks")
        messages = os.memfd_create("tuimon-messages")
        limit_s = math.ceil(2 * window_s + 3)  # it ends by itself if no process is left to stop it
        command = [
            *(binary, "record", "--pid", str(pid), "--nonblocking", "--gil" if gil else "--idle"),
            *("--threads", "--full-filenames"),
            *("--format", "speedscope", "--rate", str(rate_hz), "--duration", str(limit_s)),
            *("--output", f"/proc/self/fd/{_OUTPUT_FD}"),
        ]
        try:
            child = _spawn(command, output, messages)
        except OSError:
            os.close(output)
            os.close(messages)
            raise
        take_short_turns(child)
        now_s = time.monotonic()
        return cls(pid, now_s, now_s + window_s, now_s + limit_s, child, output, messages, most_cpu_s)

    def poll(self, now_s: float) -> EndedWindow | None:
        """Stop the window when it is due; returns it once it has ended, else None."""
        try:
            reaped, status, usage = os.wait4(self.child, os.WNOHANG)
        except ChildProcessError:  # somebody ignores SIGCHLD: the kernel has reaped it
            return self._ended(now_s, 0.0, 0)
        if reaped:
            return self._ended(now_s, usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status))
        if self._stopped_s is None and self._is_due(now_s):
            self._signal(signal.SIGINT)  # SIGTERM would lose the file
            self._stopped_s = now_s
        elif self._stopped_s is not None and now_s >= self._stopped_s + self.STOP_TIMEOUT_S:
            self._signal(signal.SIGKILL)
        return None

    def _is_due(self, now_s: float) -> bool:
        """True if it must stop. If py-spy begins late, the window is as long as planned from its first sample on.

        On a busy machine, or from a cold disk, it may begin seconds late; it prints a line when it does.
        """
        if now_s < self.due_s:
            used = procfs.read_process_stat(self.child) if self._most_cpu_s < math.inf else None
            is_overspent = used is not None and used.cpu_s > self._most_cpu_s
            return is_overspent and os.fstat(self.messages).st_size > 0
        if not os.fstat(self.messages).st_size and now_s < self.latest_s:
            self._silent_s = now_s
            return False
        if self._silent_s is None or now_s >= self.latest_s:
            return True
        self.due_s += self._silent_s - self.started_s
        self.started_s, self._silent_s = self._silent_s, None
        return now_s >= self.due_s

    def follow_thread(self) -> None:
        """Put py-spy on the core that the process's main thread is on now."""
        if not self.stopping:
            move(self.child, self.pid)

    @property
    def stopping(self) -> bool:
        """True if SIGINT was sent: it samples no more, and writes its file."""
        return self._stopped_s is not None

    def kill(self) -> float:
        """End the window immediately, without its samples; returns the CPU seconds that it cost."""
        self._signal(signal.SIGKILL)
        cpu_s = 0.0
        with contextlib.suppress(ChildProcessError):
            _, _, usage = os.wait4(self.child, 0)
            cpu_s = usage.ru_utime + usage.ru_stime
        self._close()
        return cpu_s

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, number)

    def _ended(self, now_s: float, cpu_s: float, exit_code: int) -> EndedWindow:
        message = os.pread(self.messages, 16384, 0).decode("utf-8", "replace")
        speedscope = os.pread(self._output, os.fstat(self._output).st_size, 0)
        self._close()
        # tuimon itself may have been stopped for hours since
        until_s = self._stopped_s or min(now_s, self.latest_s)
        window_s = max(until_s - self.started_s, 0.0)
        interrupted = exit_code == -signal.SIGINT
        if interrupted:
            message = f"py-spy had not started to sample after {window_s:.1f} s\n{message}"
        elif exit_code < 0:
            message = f"py-spy was ended by signal {-exit_code}\n{message}"
        samples = None
        if speedscope:
            try:
                samples = _with_os_ids(parse_speedscope(speedscope, self.pid), self.pid)
            except ValueError as error:
                message = f"py-spy wrote {error}"
        errors = _ERRORS.findall(message)
        failed = int(errors[-1]) if errors else 0
        return EndedWindow(self.pid, window_s, until_s, cpu_s, samples, failed, message, interrupted)

    def _close(self) -> None:
        os.close(self._output)
        os.close(self.messages)


def _with_os_ids(samples: WindowSamples, pid: int) -> WindowSamples:
    """The samples with OS thread ids, which py-spy does not give for Python before 3.11."""
    ids = os_ids(pid, [thread.tid for thread in samples.threads])
    threads = [replace(thread, tid=ids.get(thread.tid, thread.tid)) for thread in samples.threads]
    return replace(samples, threads=threads) if ids else samples


def _spawn(command: list[str], output: int, messages: int) -> int:
    """Start py-spy in a process group of its own: a Ctrl-C on the terminal is not for it."""
    return os.posix_spawn(
        command[0],
        command,
        environment(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, messages, 1),
            (os.POSIX_SPAWN_DUP2, messages, 2),
            (os.POSIX_SPAWN_DUP2, output, _OUTPUT_FD),
        ],
        setpgroup=0,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    )


#: Number of sched_setattr(2), by machine.
_CALLS = {"x86_64": 314, "aarch64": 274}
#: Made once: each has classes of its own, and one is made for every window of stack samples.
_LIBC = ctypes.CDLL(None)
#: struct sched_attr: size, policy, flags, nice, priority; runtime, which is the turn here, deadline, period; two hints.
_ATTRIBUTES = struct.Struct("=IIQiIQQQII")


def take_short_turns(tid: int) -> bool:
    """Have a thread, and those that it begins from now on, run in short turns; returns whether the kernel accepts it.

    A thread that wakes on a busy core waits for the one that runs there: since Linux 6.6 for up to 3 ms, or until that
    one sleeps. A sampler then sees it asleep. In steps of 1.5 ms that wait for data for 0.50 of their time, py-spy on
    the same core showed 0.66 to 0.69, and with short turns 0.49. From Linux 6.12 on everyone may ask for short turns;
    earlier kernels ignore it.
    """
    call = _CALLS.get(os.uname().machine)
    if call is None:
        return False
    try:
        if os.sched_getscheduler(tid) != os.SCHED_OTHER:
            return False
        nice = os.getpriority(os.PRIO_PROCESS, tid)
    except OSError:  # it has ended
        return False
    # the shortest turn that the kernel grants
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, 100_000, 0, 0, 0, 0)
    return bool(_LIBC.syscall(call, tid, attributes, 0) == 0)


#: py-spy's message if a stack changed while it was read: of a busy process about one dump in a hundred.
_TORN = "Failed to get stack traces"


class _DumpedFrame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _DumpedThread(msgspec.Struct):
    """One thread of ``py-spy dump --json``; ``frames`` leaf first."""

    thread_id: int
    frames: list[_DumpedFrame]
    os_thread_id: int | None = None
    thread_name: str | None = None

    def sampled(self, tid: int) -> SampledThread:
        """The thread with the one stack that was found."""
        frames = (RawFrame(at.filename, max(at.line, 0), bare_name(at.name)) for at in reversed(self.frames))
        return SampledThread(tid, self.thread_name or "", Counter([tuple(frames)]))


class DumpError(Exception):
    """The process could not be read; the text is py-spy's."""


_dump = msgspec.json.Decoder(list[_DumpedThread])


def dump(binary: str, pid: int, timeout_s: float = 5.0) -> list[SampledThread]:
    """All threads at one instant, those without Python code included. Raises DumpError."""
    for _ in range(2):  # and once more
        try:
            return _dump_once(binary, pid, timeout_s)
        except DumpError as error:
            if _TORN not in str(error):
                raise
    return _dump_once(binary, pid, timeout_s)


def _dump_once(binary: str, pid: int, timeout_s: float) -> list[SampledThread]:
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
    ids = os_ids(pid, [thread.thread_id for thread in threads if thread.os_thread_id is None])
    alone = pid if len(threads) == 1 else 0
    return [each.sampled(each.os_thread_id or ids.get(each.thread_id) or alone) for each in threads]
