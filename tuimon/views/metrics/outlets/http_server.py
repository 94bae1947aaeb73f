"""``--prometheus``: metrics over HTTP, for Prometheus to scrape."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import socketserver
import threading
from collections import OrderedDict
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from tuimon.views.metrics.outlets.address import Address
from tuimon.views.metrics.outlets.exposition import registry_of
from tuimon.views.metrics.outlets.outlet import Condition
from tuimon.views.metrics.snapshot import Snapshots

#: Seconds that a connection may be silent.
_SILENT_S = 10.0
#: Scrapes at a time. One more ends the oldest, so that slow ones, whatever their number, hold up nobody else.
_AT_A_TIME = 8
#: Seconds between two attempts to listen.
_RETRY_S = 5.0


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: stderr is the screen."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each scrape, and no more than some of them."""

    daemon_threads = True
    request_queue_size = 2 * _AT_A_TIME
    timeout = 0.5  # seconds until the end is noticed

    def __init__(self, address: Address) -> None:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._open: OrderedDict[int, socket.socket] = OrderedDict()
        self._changing = threading.Lock()
        super().__init__(where[:2], _Handler)  # type: ignore[arg-type]  # (of IPv6 it holds more)

    def server_bind(self) -> None:
        """Bind like a plain TCP server: HTTPServer looks our name up in the name service, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        """Begin a scrape; where there are too many, end the oldest."""
        with self._changing:
            self._open[id(request)] = request
            oldest = self._open.popitem(last=False)[1] if len(self._open) > _AT_A_TIME else None
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """The scrape is over."""
        with self._changing:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that went away, or sent nonsense, is its own trouble."""


class MetricsServer:
    """Listens until it is closed; where that is impossible it says so and tries again."""

    name = "prometheus"

    def __init__(self, snapshots: Snapshots, address: Address) -> None:
        self.condition: Condition | None = None
        self._snapshots = snapshots
        self._address = address
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tuimon-prometheus", daemon=True)

    def start(self) -> None:
        """Listen, or begin to try."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Stop listening; scrapes that go on end with the process."""
        self._closing.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        server = self._listen()
        while server is None and not self._closing.wait(_RETRY_S):
            server = self._listen()
        if server is not None:
            with server:
                while not self._closing.is_set():
                    server.handle_request()

    def _listen(self) -> _Server | None:
        try:
            server = _Server(self._address)
        except OSError as error:
            self.condition = _cannot_listen(self._address, error)
            return None
        server.set_app(make_wsgi_app(registry_of(self._snapshots.fresh), disable_compression=True))
        self.condition = Condition(f"served at {Address(self._address.host, server.server_port).url}")
        return server


def _cannot_listen(address: Address, error: OSError) -> Condition:
    where = f"{address.host}:{address.port}"
    if error.errno == errno.EADDRINUSE:
        return Condition(f"{where} is in use, no metrics there yet", False, "Name another port: --prometheus PORT")
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return Condition(
            f"{where} is no address of this machine", False, "0.0.0.0:PORT listens on all of its addresses"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return Condition(f"listening on {where} is not permitted", False, "Ports from 1024 on need no privileges")
    return Condition(f"cannot listen on {where}: {os.strerror(error.errno or 0)}", works=False)
