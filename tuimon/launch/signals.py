"""Signals to tuimon beside a training: those that make it leave are noted, those of a headless run are passed on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuimon.launch.child import Launched

#: Make tuimon leave. SIGUSR1 and SIGUSR2: what schedulers send ahead of the time limit, which would end us with the
#: terminal in disorder.
_LEAVE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: A SIGINT that came without a terminal may have gone to the whole process group; the target is given this long to
#: end by it before it is passed on, so that it is not interrupted twice.
INTERRUPT_GRACE_S = 1.0
#: Passed on at once. Schedulers send USR1 or USR2 ahead of the time limit, so that a training saves itself: Slurm with
#: control groups to the step's own task alone, which is tuimon.
_PASSED_ON = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: Most signals that wait for the target to be started.
_MOST_DUE = 64


class _Handlers:
    """Handlers of signals until ``__exit__``.

    Signals that were ignored when tuimon started (``nohup``, a background job of ``sh``) stay ignored.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, object] = {}

    def _set(
        self, number: signal.Signals, handler: Callable[[int, FrameType | None], object] | signal.Handlers
    ) -> None:
        before = signal.getsignal(number)
        if before is not signal.SIG_IGN and before is not None:
            self._before[number] = before
            signal.signal(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.getsignal gave


class LeaveSignals(_Handlers):
    """While entered, signals to leave do not end tuimon; they are noted, so that it leaves in order."""

    def __init__(self) -> None:
        super().__init__()
        self.hung_up = False  # the terminal is lost, or a signal says so
        self.ended_by: signal.Signals | None = None  # any of them but SIGHUP
        #: Called from the signal handler, at any point of the main thread: it may take no lock.
        self.notify: Callable[[], object] | None = None

    def __enter__(self) -> LeaveSignals:
        for number in _LEAVE:
            self._set(number, self._receive)
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
    """While entered, tuimon ignores SIGHUP (as does what it starts) and does not end by any that it passes on.

    Signals of the terminal reach the target directly.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._launched: Launched | None = None
        self._interrupted_s: float | None = None
        self._due: list[signal.Signals] = []

    def __enter__(self) -> Relay:
        self._set(signal.SIGHUP, signal.SIG_IGN)
        self._set(signal.SIGINT, self._on_interrupt)
        for number in _PASSED_ON:
            self._set(number, self._on_signal)
        return self

    def forward_to(self, launched: Launched) -> None:
        """Pass signals on to this process; those that came before are passed on now."""
        self._launched = launched
        self.step()

    def step(self) -> None:
        """Pass on what is due; to be called every tick."""
        if self._launched is None:
            return
        while self._due:
            self._launched.forward(self._due.pop(0))
        if self._interrupted_s is not None and self._clock() >= self._interrupted_s + INTERRUPT_GRACE_S:
            self._interrupted_s = None
            self._launched.forward(signal.SIGINT)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if not in_foreground() and self._interrupted_s is None:
            self._interrupted_s = self._clock()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if len(self._due) < _MOST_DUE:
            self._due.append(signal.Signals(number))
        self.step()


def in_foreground() -> bool:
    """True if tuimon is the foreground job of a terminal: then Ctrl-C reaches the target without it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
