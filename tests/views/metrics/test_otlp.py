"""OpenTelemetry: what arrives at a collector, and a collector that does not answer."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.views.metrics.figures import FINDINGS, whole_session
from tests.waiting import until
from tuimon.views.metrics import otlp, table
from tuimon.views.metrics.metrics_view import MetricsView
from tuimon.views.metrics.otlp import OtlpSender, endpoint, shown
from tuimon.views.metrics.snapshot import Snapshots


class Collector(HTTPServer):
    """Keeps what it receives; answers with a status."""

    def __init__(self, status: int) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.status = status
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def collector(status: int = 200) -> Iterator[Collector]:
    with Collector(status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_a_collector_receives_every_metric() -> None:
    session, snapshots = whole_session(), Snapshots()
    with collector() as server:
        view = MetricsView(snapshots, [OtlpSender(snapshots, f"http://127.0.0.1:{server.server_port}")])
        view.start()
        notices = until(lambda: view.show(session, FINDINGS))
        view.close(session, FINDINGS)
    assert notices[0].message == f"sent to http://127.0.0.1:{server.server_port}/v1/metrics"
    assert [path for path, _ in server.received] == ["/v1/metrics"] * 2  # the end is sent too
    request = ExportMetricsServiceRequest.FromString(server.received[-1][1])
    about = {pair.key: pair.value.string_value for pair in request.resource_metrics[0].resource.attributes}
    assert about["service.name"] == "tuimon" and about["host.name"] == "here"
    assert about["service.instance.id"] == f"here:{os.getpid()}"
    metrics = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert len(metrics) >= len(table.METRICS) - 3
    for metric in table.METRICS:
        if metric.name in metrics:
            assert (metrics[metric.name].unit, metrics[metric.name].description) == (metric.unit, metric.help)
    steps = metrics["tuimon.steps"].sum
    assert steps.is_monotonic and [point.as_int or point.as_double for point in steps.data_points] == [120, 120]
    step = metrics["tuimon.step"].histogram.data_points[0]
    assert (step.count, tuple(step.explicit_bounds), step.sum) == (120, table.STEP_BOUNDS, pytest.approx(12.0))
    assert not metrics["hw.gpu.memory.usage"].sum.is_monotonic
    of_gpu = {pair.key: pair.value.string_value for pair in metrics["hw.power"].gauge.data_points[0].attributes}
    assert of_gpu == {"hw.id": "GPU-0", "UUID": "GPU-0", "gpu": "0", "hw.type": "gpu"}


def test_a_collector_that_refuses_is_said_once_and_writes_nothing_on_the_screen(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_PERIOD_S", 0.01)
    session, snapshots = whole_session(1), Snapshots()
    with collector(status=400) as server:
        view = MetricsView(snapshots, [OtlpSender(snapshots, f"http://127.0.0.1:{server.server_port}/own/path")])
        view.start()
        notices = []
        until(lambda: (notices.extend(view.show(session, ())), len(server.received) > 3)[1])
        view.close(session, ())
    assert [notice.level for notice in notices] == ["warning"]
    assert {path for path, _ in server.received} == {"/own/path"}
    assert capfd.readouterr() == ("", "")


def test_a_collector_that_never_answers_holds_up_nothing_and_is_sent_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tuimon.views.metrics.metrics_view.CLOSE_S", 0.1)
    monkeypatch.setattr(otlp, "_TIMEOUT_S", 60.0)
    session, snapshots = whole_session(1), Snapshots()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        sender = OtlpSender(snapshots, f"http://127.0.0.1:{silent.getsockname()[1]}")
        view = MetricsView(snapshots, [sender])
        view.start()
        threads = threading.active_count()
        until(lambda: (view.show(session, ()), sender._exporter)[1])
        connection, _ = silent.accept()
        for _ in range(200):  # ticks while it waits: no snapshot is taken, no thread started, no notice given
            assert view.show(session, ()) == []
        assert threading.active_count() == threads
        assert snapshots._wanted is False
        view.close(session, ())
        connection.close()
    until(lambda: not sender._thread.is_alive())


@pytest.mark.parametrize(
    ("url", "where", "said"),
    [
        ("http://c:4318", "http://c:4318/v1/metrics", "http://c:4318/v1/metrics"),
        ("https://c/", "https://c/v1/metrics", "https://c/v1/metrics"),
        ("https://me:pw@c/otlp/v1/metrics?key=s", "https://me:pw@c/otlp/v1/metrics?key=s", "https://c/otlp/v1/metrics"),
    ],
)
def test_addresses(url: str, where: str, said: str) -> None:
    assert endpoint(url) == where
    assert shown(endpoint(url)) == said
