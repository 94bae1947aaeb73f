"""The server of metrics against real sockets, and what goes wrong with them."""

import contextlib
import functools
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("prometheus_client")

from tests.session import records
from tests.views.metrics.figures import PHASES, whole_session
from tests.waiting import until
from tuimon.records import Notice
from tuimon.session.session import Session
from tuimon.views import prometheus
from tuimon.views.prometheus import Address, MetricsServer, Snapshot, Snapshots, parse_address

LOOPBACK = "127.0.0.1"


class Monitor:
    """Ticks a view, as the real one does."""

    def __init__(self, session: Session, server: MetricsServer) -> None:
        self.session = session
        self.notices: list[Notice] = []
        self.view = server

    def tick(self) -> list[Notice]:
        self.notices += self.view.show(self.session, ())
        return self.notices

    def said(self, text: str) -> bool:
        return any(text in notice.message for notice in self.tick())


@contextlib.contextmanager
def served(snapshots: Snapshots | None = None) -> Iterator[tuple[Monitor, int]]:
    """A monitor that ticks on a thread of its own, for callers that wait for an answer; and the server's port."""
    session, snapshots, over = whole_session(1), snapshots or Snapshots(), threading.Event()
    monitor = Monitor(session, MetricsServer(snapshots, Address(LOOPBACK, 0)))

    def tick() -> None:
        while not over.wait(0.01):
            monitor.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield monitor, port_of(monitor)
    finally:
        over.set()
        thread.join()
        monitor.view.close(session, ())


def port_of(monitor: Monitor) -> int:
    found = until(lambda: [notice for notice in monitor.notices if "served at" in notice.message])
    return int(found[-1].message.rpartition(":")[2].partition("/")[0])


def get(port: int, host: str = LOOPBACK) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_a_scrape_gets_what_is_known_now() -> None:
    with served() as (monitor, port):
        status, text = get(port)
        assert (status, 'tuimon_steps_total{rank="0"} 120.0' in text) == (200, True)
        monitor.session.add(records.steps(13.0, PHASES, first_index=120, pid=4242))
        assert 'tuimon_steps_total{rank="0"} 130.0' in get(port)[1]


def test_a_port_in_use_is_said_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "RETRY_S", 0.05)
    session, snapshots = whole_session(1), Snapshots()
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        monitor = Monitor(session, MetricsServer(snapshots, Address(LOOPBACK, port)))
        until(lambda: monitor.said("in use"))
    until(lambda: monitor.said("served at"))
    assert [(notice.source, notice.level) for notice in monitor.notices] == [
        ("prometheus", "warning"), ("prometheus", "info"),
    ]  # fmt: skip
    monitor.view.close(session, ())


@pytest.mark.parametrize(
    ("host", "says"), [("192.0.2.1", "not an address of this machine"), ("no.such.invalid", "not an address")]
)
def test_an_address_that_is_not_ours(host: str, says: str) -> None:
    session, snapshots = whole_session(1), Snapshots()
    monitor = Monitor(session, MetricsServer(snapshots, Address(host, 0)))
    until(lambda: monitor.said(says))
    monitor.view.close(session, ())


def test_of_many_scrapers_at_once_none_is_cut_off() -> None:
    """All have asked before the first is answered: those that find no room wait."""
    all_asked = threading.Event()

    class Gated(Snapshots):
        def fresh(self, timeout_s: float = 60.0) -> Snapshot | None:
            all_asked.wait()
            return super().fresh(timeout_s)

    with served(Gated()) as (_, port), contextlib.ExitStack() as stack:
        stack.callback(all_asked.set)
        asked = [stack.enter_context(socket.create_connection((LOOPBACK, port))) for _ in range(30)]
        for each in asked:
            each.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        until(lambda: len(_scrapes()) >= prometheus.AT_A_TIME)
        assert len(_scrapes()) == prometheus.AT_A_TIME
        all_asked.set()
        answers = [b"".join(iter(functools.partial(each.recv, 1 << 16), b"")) for each in asked]
        assert all(each.startswith(b"HTTP/1.0 200") and b"tuimon_steps_total" in each for each in answers)
        assert len({len(each) for each in answers}) == 1


def test_silent_scrapers_hold_up_others_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus.Handler, "timeout", 0.05)
    with served() as (_, port), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection((LOOPBACK, port))) for _ in range(12)]
        assert get(port)[0] == 200
        assert silent[0].recv(1) == b""


@pytest.mark.trust
def test_scrapers_that_drip_hold_up_others_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "SCRAPE_S", 0.3)
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.02):
                connection.sendall(b"G")

    with served() as (_, port), contextlib.ExitStack() as stack:
        for _ in range(12):
            dripping = stack.enter_context(socket.create_connection((LOOPBACK, port)))
            threading.Thread(target=drip, args=(dripping,), daemon=True).start()
        stack.callback(over.set)
        assert get(port)[0] == 200


def test_a_scrape_that_hangs_holds_up_neither_ticks_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuimon.views.prometheus.CLOSE_S", 0.1)
    hanging, released = threading.Event(), threading.Event()

    class Hanging(Snapshots):
        def fresh(self, timeout_s: float = 60.0) -> Snapshot | None:
            hanging.set()
            released.wait()
            return None

    session, snapshots = whole_session(1), Hanging()
    monitor = Monitor(session, MetricsServer(snapshots, Address(LOOPBACK, 0)))
    until(lambda: monitor.said("served at"))
    with socket.create_connection((LOOPBACK, port_of(monitor))) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        until(hanging.is_set)
        for _ in range(100):
            monitor.tick()
        monitor.view.close(session, ())
    released.set()


def _scrapes() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "process_request" in thread.name]


def test_nonsense_is_answered_and_breaks_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with served() as (_, port):
        for nonsense in (
            b"\x16\x03\x01\x02\x00\r\n\r\n",
            b"POST /metrics HTTP/1.0\r\nContent-Length: 9\r\n\r\n",
            b"\r\n\r\n",
        ):
            with socket.create_connection((LOOPBACK, port)) as client:
                client.sendall(nonsense)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
        assert get(port)[0] == 200
    assert capfd.readouterr() == ("", "")  # the screen is ours


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9105", (LOOPBACK, 9105)),
        ("0.0.0.0:9105", ("0.0.0.0", 9105)),
        ("[::1]:9105", ("::1", 9105)),
        ("node7:0", ("node7", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert Address("::1", 9105).url == "http://[::1]:9105/metrics"


@pytest.mark.parametrize("text", ["", ":9105", "::1:9105", "65536", "http://x:1", "9105:", "٣", "-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_address(text)
