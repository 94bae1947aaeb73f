"""``--prometheus``: snapshots over HTTP, by Prometheus's own client library."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from tuimon.diagnosis.finding import Finding
from tuimon.records import Notice
from tuimon.session.session import Session
from tuimon.views.metrics.serving import Address
from tuimon.views.metrics.snapshot import Family, Snapshot, Snapshots


class Collector:
    """The collector that the library reads at each scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """The families of one snapshot; none before the first."""
        yield from self._snapshot() or ()


def registry_of(snapshot: Callable[[], Snapshot | None]) -> CollectorRegistry:
    """A registry of these metrics alone, without the library's own about the process that tuimon runs in."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(snapshot))
    return registry


def text_of(snapshot: Snapshot) -> bytes:
    """The snapshot in Prometheus's text format."""
    return bytes(generate_latest(registry_of(lambda: snapshot)))


#: Seconds that a connection may be silent, or not take its answer, and that a scrape may take while others wait:
#: Prometheus gives a scrape up after 10 s.
SCRAPE_S = 10.0
#: Scrapes at a time; others wait in the kernel's queue for their turn.
AT_A_TIME = 8
#: Seconds between two attempts to listen.
RETRY_S = 5.0
#: Seconds that the end of tuimon waits for the server.
CLOSE_S = 2.0


class Handler(WSGIRequestHandler):
    """Answers one scrape, in bounded time."""

    timeout = SCRAPE_S

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: stderr is the screen."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each scrape, at most ``AT_A_TIME`` of them."""

    daemon_threads = True
    request_queue_size = 128
    timeout = 0.5  # seconds until it is noticed that the server is to close

    def __init__(self, address: Address) -> None:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._turns = threading.BoundedSemaphore(AT_A_TIME)
        self._begun_s: dict[socket.socket, float] = {}
        super().__init__(where[:2], Handler)  # type: ignore[arg-type]  # (an IPv6 address has more parts)

    def server_bind(self) -> None:
        """Bind like a plain TCP server: HTTPServer would look the host's name up, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        """Begin a scrape once there is room for it; scrapes that take too long make room."""
        while not self._turns.acquire(timeout=self.timeout):
            for other, begun_s in list(self._begun_s.items()):
                if time.monotonic() > begun_s + SCRAPE_S:
                    with contextlib.suppress(OSError):  # that scrape has just ended
                        other.shutdown(socket.SHUT_RDWR)
        self._begun_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """Make room for another scrape."""
        self._begun_s.pop(request, None)
        super().shutdown_request(request)
        self._turns.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore scrapers that go away or send nonsense."""


class MetricsServer:
    """Listens from the first ``show`` on; if it cannot, it reports why and tries again. Only ``close`` waits."""

    name = "metrics"

    def __init__(self, snapshots: Snapshots, address: Address) -> None:
        self._notice: Notice | None = None  # on whether it listens; without a time
        self._reported: Notice | None = None
        self._snapshots = snapshots
        self._address = address
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tuimon-prometheus", daemon=True)

    def show(self, session: Session, findings: Sequence[Finding]) -> list[Notice]:
        """Take a snapshot if one is wanted; returns what has changed about the server."""
        if self._thread.ident is None:
            self._thread.start()
        self._snapshots.offer(session, findings)
        new = self._notice
        if new is None or new == self._reported:
            return []
        self._reported = new
        return [structs.replace(new, t=session.now_s)]

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        """Offer the last snapshot, then stop listening; scrapes that go on end with the process."""
        self._snapshots.offer(session, findings, last=True)
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        server = self._listen()
        while server is None and not self._closing.wait(RETRY_S):
            server = self._listen()
        if server is not None:
            with server:
                while not self._closing.is_set():
                    server.handle_request()

    def _listen(self) -> _Server | None:
        try:
            server = _Server(self._address)
        except OSError as error:
            self._notice = _cannot_listen(self._address, error)
            return None
        server.set_app(make_wsgi_app(registry_of(self._snapshots.fresh), disable_compression=True))
        address = Address(self._address.host, server.server_port)
        self._notice = Notice(t=0.0, pid=0, source="prometheus", level="info", message=f"served at {address.url}")
        return server


def _cannot_listen(address: Address, error: OSError) -> Notice:
    where, hint = f"{address.host}:{address.port}", None
    if error.errno == errno.EADDRINUSE:
        message, hint = f"{where} is in use, so no metrics are served yet", "Name another port: --prometheus PORT"
    elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        message, hint = f"{where} is not an address of this machine", "0.0.0.0:PORT listens on all of its addresses"
    elif error.errno in (errno.EACCES, errno.EPERM):
        message, hint = f"listening on {where} is not permitted", "Ports from 1024 on need no privileges"
    else:
        message = f"cannot listen on {where}: {os.strerror(error.errno or 0)}"
    return Notice(t=0.0, pid=0, source="prometheus", level="warning", message=message, hint=hint)
