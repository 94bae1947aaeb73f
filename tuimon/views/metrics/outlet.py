"""An outlet: where metrics leave tuimon, on a thread of its own, its state in one line; and the address of one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from tuimon.text import whole_number
from tuimon.views.metrics.snapshot import Snapshot, Snapshots

_LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """An address to listen on."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL for a browser, or for Prometheus."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"


def parse_address(text: str) -> Address:
    """``9105``, ``0.0.0.0:9105`` or ``[::1]:9105``; a port alone is on the loopback interface. Raises ValueError."""
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or text.strip().startswith(":"):
        raise ValueError(f"{text!r} is not [ADDRESS:]PORT; an IPv6 address stands in brackets")
    number = whole_number(port)
    if number is None or number > 65535:
        raise ValueError(f"{text!r} is not [ADDRESS:]PORT such as 9105 or 0.0.0.0:9105")
    return Address(host or _LOOPBACK, number)


class Condition(NamedTuple):
    """How an outlet is doing, for the user."""

    message: str
    works: bool = True
    hint: str | None = None


class Outlet(Protocol):
    """Shows snapshots to somebody outside. An error becomes its condition; it never raises and never waits."""

    name: str  # the source of its notices
    condition: Condition | None  # None: nothing to report yet

    def start(self) -> None:
        """Begin."""
        ...

    def close(self, timeout_s: float) -> None:
        """Show the last snapshot where that makes sense, and end; wait at most this long."""
        ...


class Periodic(ABC):
    """Base of the outlets that send on by themselves: every period, on an own thread, and once more at the end."""

    def __init__(self, snapshots: Snapshots, name: str, period_s: float) -> None:
        self.name = name
        self.condition: Condition | None = None
        self._snapshots = snapshots
        self._period_s = period_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tuimon-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Send the last snapshot and end; a send that hangs is left to the end of the process."""
        self._closing.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            last = self._closing.is_set()
            self._send_latest()
            if last:
                break
            self._closing.wait(self._period_s)
        self.end()

    def _send_latest(self) -> None:
        snapshot = self._snapshots.fresh()
        if snapshot is None:
            return
        try:
            self.condition = self.send(snapshot)
        except Exception as error:  # noqa: BLE001  (this is where metrics meet the outside)
            self.condition = Condition(f"no metrics: {type(error).__name__}: {str(error)[:200]}", works=False)

    @abstractmethod
    def send(self, snapshot: Snapshot) -> Condition:
        """Send one snapshot; how that went."""

    def end(self) -> None:  # noqa: B027  (there may be nothing to do)
        """Let go of what was opened."""
