"""Calls that may hang, each made on another thread and waited for only up to a timeout."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tuimon.proc import procfs

T = TypeVar("T")


class _Raised(NamedTuple):
    error: Exception


class CallWithTimeout(Generic[T]):
    """One call at a time. A call that hangs holds up its own thread and no other."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[T | _Raised] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.pending = False  # a call is under way, and its answer has not been received

    @property
    def waited_s(self) -> float:
        """Seconds for which its thread could have run but had no core."""
        return procfs.waited_s(os.getpid(), self._thread.native_id) if self._thread.native_id else 0.0

    def call(self, work: Callable[[], T], timeout_s: float) -> T | None:
        """Return what ``work`` returns, or raise what it raises; None when that takes longer.

        While an earlier call is under way, its answer is waited for instead and ``work`` is not called.
        """
        if not self.pending:
            if self._thread.ident is None:
                self._thread.start()
            self.pending = True
            self._work.put(work)
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self.pending = False
        if isinstance(answer, _Raised):
            raise answer.error
        return answer

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                self._answers.put(work())
            except Exception as error:  # noqa: BLE001  (raised again in the caller's thread)
                self._answers.put(_Raised(error))
