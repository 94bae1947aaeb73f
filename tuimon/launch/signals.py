"""Signals to tuimon while it watches a training: those to leave are noted, those to a headless run passed on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from tuimon.bounds import HELD
from tuimon.proc import procfs

if TYPE_CHECKING:
    from tuimon.launch.child import Launched

#: Make tuimon leave. SIGUSR1 and SIGUSR2: what schedulers send ahead of the time limit, which would end us with the
#: terminal in disorder.
_LEAVE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: A signal to several processes, to a group or to one after the other, reaches all of them within this (s).
TOGETHER_S = 0.1
#: Signals about a process's own stops, children, files and faults, and signals that cannot be received: not passed on.
_OWN = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGCHLD),
    *(signal.SIGWINCH, signal.SIGURG, signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),
}
#: All others would end tuimon, and are meant for the training. Schedulers send USR1 or USR2 ahead of the time limit, so
#: that a training saves itself; Slurm with control groups sends them to the step's own task alone, which is tuimon.
PASSED_ON: frozenset[int] = frozenset(signal.valid_signals() - _OWN)


class _Handlers:
    """Handlers of signals until ``__exit__``."""

    def __init__(self) -> None:
        self._before: dict[int, object] = {}

    def _set_handler(self, number: int, handler: Callable[[int, FrameType | None], object]) -> None:
        before = signal.getsignal(number)
        if before is not None and number not in self._before:
            self._before[number] = before
            signal.signal(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.getsignal gave


class LeaveSignals(_Handlers):
    """While entered, signals to leave do not end tuimon; they are noted, so that it leaves in order.

    Signals that were ignored when tuimon started (``nohup``, a background job of ``sh``) stay ignored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hung_up = False  # the terminal is lost, or a signal says so
        self.ended_by: signal.Signals | None = None  # any of them but SIGHUP
        #: Called from the signal handler, at any point of the main thread: it may take no lock.
        self.notify: Callable[[], object] | None = None

    def __enter__(self) -> LeaveSignals:
        for number in _LEAVE:
            if not _is_ignored(number):
                self._set_handler(number, self._receive)
        return self

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.hung_up = True
        else:
            self.ended_by = signal.Signals(number)
        if self.notify is not None:
            with suppress(RuntimeError):  # the loop it would wake is closed
                self.notify()


class Relay(_Handlers):
    """While entered, a signal to tuimon alone is passed on to the training, and tuimon goes on.

    The training is in tuimon's own process group and session, as it would be without tuimon: what is sent to all of
    the group (a terminal, ``timeout``) or to each process of a job (a scheduler) has reached it already.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._launched: Launched | None = None
        self._due: list[tuple[float, int]] = []  # when each came, and its number

    def __enter__(self) -> Relay:
        self._witness = Witness()
        for number in PASSED_ON:
            if not _is_ignored(number):  # the training is to inherit an ignored signal
                self._set_handler(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._witness.close()

    def forward_to(self, launched: Launched) -> None:
        """Pass signals on to this process, which has just been started; those that came before are passed on now."""
        for number in PASSED_ON:
            self._set_handler(number, self._on_signal)
        self._launched = launched
        while self._due:
            launched.forward(self._due.pop(0)[1])

    def step(self) -> None:
        """Pass on what is due; to be called every tick."""
        now_s = self._clock()
        if self._launched is None or not self._due or now_s < self._due[0][0] + TOGETHER_S:
            return
        sent_to_all = self._witness.received()
        for each in list(self._due):  # a handler adds to it meanwhile
            came_s, number = each
            if number in sent_to_all:
                self._due.remove(each)
            elif now_s >= came_s + TOGETHER_S:
                self._due.remove(each)
                self._launched.forward(number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if len(self._due) < HELD:
            self._due.append((self._clock(), number))


class Witness:
    """A process next to tuimon that receives signals sent to more processes than tuimon.

    The kernel does not say whether a signal was sent to one process or to a group. The witness, a ``cat`` that ends
    with tuimon, blocks all signals that are passed on, so that /proc shows which have come. Without it, what is sent to
    a group reaches the training twice.
    """

    def __init__(self) -> None:
        self._process = self._new()

    def received(self) -> frozenset[int]:
        """The signals that it has received since the last call."""
        if self._process is None or not (received := procfs.read_signals(self._process.pid, "ShdPnd")):
            return frozenset()
        before, self._process = self._process, self._new()
        received |= procfs.read_signals(before.pid, "ShdPnd")
        _end(before)
        return received

    def close(self) -> None:
        if self._process is not None:
            _end(self._process)

    def _new(self) -> subprocess.Popen[bytes] | None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        null = subprocess.DEVNULL
        try:
            return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=null, stderr=null)
        except OSError:
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes its input, and waits
        process.kill()


def is_group_orphaned() -> bool:
    """True if nobody is left to continue tuimon's process group: SIGTSTP does not stop it then.

    The parents of all its processes are in the group as well, or in other sessions (setpgid(2)).
    """
    group, session = os.getpgrp(), os.getsid(0)
    for pid in procfs.pids():
        with suppress(OSError):  # it has ended
            stat = procfs.read_process_stat(pid) if os.getpgid(pid) == group else None
            if stat is not None and os.getpgid(stat.ppid) != group and os.getsid(stat.ppid) == session:
                return False
    return True


def _is_ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN
