"""Signals that make tuimon leave a training: kept, so that it leaves in order and the training goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

#: SIGUSR1 and SIGUSR2: what schedulers send ahead of the time limit, which would end us with the terminal in disorder.
_LEAVE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class LeaveSignals:
    """While entered, these signals do not end tuimon; they are only noted.

    Signals that were ignored when tuimon started (``nohup``, a background job of ``sh``) stay ignored.
    """

    def __init__(self) -> None:
        self.hung_up = False  # the terminal is lost, or a signal says so
        self.ended_by: signal.Signals | None = None  # any of them but SIGHUP
        #: Called from the signal handler, at any point of the main thread: it may take no lock.
        self.notify: Callable[[], object] | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> LeaveSignals:
        for number in _LEAVE:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN and before is not None:
                self._before[number] = before
                signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.getsignal gave

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.hung_up = True
        else:
            self.ended_by = signal.Signals(number)
        if self.notify is not None:
            with suppress(RuntimeError):  # the loop it would wake is closed
                self.notify()
