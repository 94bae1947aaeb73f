"""Views that watch beside the screen or the headless lines, called by the monitor at every tick: metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from tuimon.diagnosis.finding import Finding
from tuimon.records import Notice
from tuimon.session.session import Session


class Observer(Protocol):
    """A view that no screen shows. Its methods return at once."""

    name: str

    def start(self) -> None:
        """The monitor begins."""
        ...

    def show(self, session: Session, findings: Sequence[Finding]) -> Sequence[Notice]:
        """The state has changed, or time has passed; what the user should know of the view itself."""
        ...

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """The monitor ends with this state; wait a few seconds at most."""
        ...


class Observers:
    """Calls each; one that raises is left out from then on, with a notice."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = list(observers)
        self._failed: list[tuple[str, Exception]] = []  # those that could not begin

    def start(self) -> None:
        """Begin all."""
        for observer in tuple(self._observers):
            try:
                observer.start()
            except Exception as error:  # noqa: BLE001  (as below; there may be no thread for it)
                self._observers.remove(observer)
                self._failed.append((observer.name, error))

    def show(self, session: Session, findings: Sequence[Finding]) -> Iterator[Notice]:
        """Call all; their notices."""
        while self._failed:
            yield _left_out(*self._failed.pop(0), session.now_s)
        for observer in tuple(self._observers):
            try:
                yield from observer.show(session, findings)
            except Exception as error:  # noqa: BLE001  (a fault in one view ends neither the monitor nor the others)
                self._observers.remove(observer)
                yield _left_out(observer.name, error, session.now_s)

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """End all."""
        for observer in self._observers:
            with contextlib.suppress(Exception):  # as above; and the run is over
                observer.close(session, findings)
        self._observers.clear()


def _left_out(name: str, error: Exception, now_s: float) -> Notice:
    message = f"no longer kept up to date: {type(error).__name__}: {str(error)[:200]}"
    return Notice(t=now_s, pid=0, source=name, level="warning", message=message)
