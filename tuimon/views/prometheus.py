"""``--prometheus``: the table of metrics, their values at one moment, and the way over HTTP, by Prometheus's library.

Names end in their unit; those of GPUs follow OpenTelemetry's conventions for hardware; docs/metrics.md lists the same.
Label values are bounded: ranks, GPUs, phases, rules; never files, lines, pids or names that a program makes up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, count
from typing import Literal, NamedTuple, TypeAlias, get_args
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from msgspec import structs
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tuimon.diagnosis.finding import Finding
from tuimon.records import Notice
from tuimon.session.processes import LAST_MOMENT_S
from tuimon.session.ranks import RankState
from tuimon.session.session import Session
from tuimon.text import whole_number
from tuimon.views.report.report import Parts, parts_of
from tuimon.views.report_types import STEP_BOUNDS, Rank, SinceStart


class Metric(NamedTuple):
    """One metric, by the names that Prometheus reads; ``constants`` are labels with a fixed value.

    ``of``: path of attributes to its value, in a row of the report with these labels; if the rows lack the last label,
    a path for each value of that label; "": the row itself is the value.
    """

    name: str
    labels: tuple[str, ...]
    of: str | Mapping[str, str]
    help: str
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """Its type in Prometheus."""
        return "counter" if self.name.endswith("_total") else "histogram" if self.of == HISTOGRAM else "gauge"

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Names of all labels, those of the constants last."""
        return (*self.labels, *(name for name, _ in self.constants))


HISTOGRAM = "since_start"
RANK = ("rank",)
GPU = ("UUID", "gpu")  # as DCGM's exporter spells it, so that both can be joined
_IS_GPU = (("hw_type", "gpu"),)

# fmt: off
METRICS: tuple[Metric, ...] = (
    # the run
    Metric("tuimon_run_info", ("run", "host", "mode", "version"), "", "Always 1; the labels describe the run."),
    Metric("tuimon_run_start_time_seconds", (), "run.started_unix_s", "When monitoring began, in seconds since 1970."),
    Metric("tuimon_run_exit_code", (), "run.exit_code", "Exit code of the run, once it has ended and is known."),
    Metric(
        "tuimon_wall_time_seconds", ("part",), "seconds",
        "How the time since monitoring began is divided: training steps, import, evaluation, checkpoints and more."),
    Metric("tuimon_ranks", (), "alive", "Training processes that are alive."),

    # steps and phases of each rank
    Metric("tuimon_steps_total", RANK, "since_start.steps", "Training steps that have ended."),
    Metric(
        "tuimon_step_seconds", RANK, HISTOGRAM,
        "Length of the steps timed boundary by boundary: all steps of 21 ms or more, and some of the shorter ones."),
    Metric(
        "tuimon_step_recent_seconds", (*RANK, "statistic"), {"median": "steps.median_ms", "p95": "steps.p95_ms"},
        "Length of a step over the last 30 s, exact within 0.5 %: median and p95."),
    Metric(
        "tuimon_last_step_time_seconds", RANK, "since_start.last_step_unix_s",
        "When the latest step ended, in seconds since 1970, within one window."),
    Metric(
        "tuimon_phase_seconds_total", (*RANK, "phase"), "since_start.phase_s",
        "Time in each phase of steps; between: data or forward, which markers cannot split; eval: outside the steps."),
    Metric(
        "tuimon_phase_share_ratio", (*RANK, "phase"), "phase_shares",
        "Share of each phase in the steps of the last 30 s, with the time between divided by stack samples."),
    Metric(
        "tuimon_phase_share_error_ratio", (*RANK, "phase"), "phase_errors",
        "Half the width of the 95 % interval of a phase's share; only for shares estimated from stack samples."),
    Metric(
        "tuimon_samples_per_second", RANK, "samples_per_s",
        "Samples that the rank trains on in a second, over the last 30 s."),
    Metric(
        "tuimon_tokens_per_second", RANK, "tokens_per_s",
        "Tokens that the rank trains on in a second, over the last 30 s; without padding, if that is known."),
    Metric(
        "tuimon_flops_per_second", RANK, "flops_per_s",
        "Floating-point operations a second, by the shapes in the rank's latest trace and the pace of the last 30 s."),
    Metric("tuimon_mfu_ratio", RANK, "mfu_ratio", "FLOPs a second, as a share of the dense peak of the rank's GPUs."),
    Metric(
        "tuimon_time_left_seconds", RANK, "left_s",
        "How long the run still takes at the pace of the last 30 s, if its Trainer states the number of its steps."),
    Metric(
        "tuimon_checkpoints_total", RANK, "checkpoints.number",
        "Checkpoints since the first steps, as bursts of writing; absent if they are too close together to separate."),
    Metric("tuimon_checkpoint_size_bytes_total", RANK, "checkpoints.size_bytes", "Bytes written by these checkpoints."),
    Metric(
        "tuimon_checkpoint_time_seconds_total", RANK, "checkpoints.seconds",
        "Time that the training thread spent saving checkpoints since the first steps, estimated from stack samples."),
    Metric(
        "tuimon_checkpoint_info", (*RANK, "file_system"), "",
        "Always 1; the label is the type of the checkpoints' file system."),
    Metric("tuimon_eval_iterations_total", RANK, "since_start.eval_count", "Evaluation iterations."),
    Metric(
        "tuimon_gc_seconds_total", RANK, "since_start.gc_s",
        "Pauses of Python's garbage collector of at least 0.5 ms."),
    Metric("tuimon_markers", RANK, "markers", "1 if steps are measured by markers, 0 if phases are inferred."),
    Metric(
        "tuimon_markers_dropped_total", RANK, "since_start.dropped",
        "Markers that were overwritten before they were read."),
    Metric("tuimon_process_cpu_ratio", RANK, "cpu_ratio", "CPU of the training process; 1 is one core."),
    Metric("tuimon_process_memory_bytes", RANK, "rss_bytes", "Resident memory of the training process."),

    # ranks compared, of a training with several
    Metric(
        "tuimon_ranks_state", ("state",), "",
        "Ranks by state: starting, training, stopped, silent, lost (ended while others go on), ended."),
    Metric("tuimon_rank_behind", RANK, "behind", "Steps that a rank is behind the first."),
    Metric(
        "tuimon_rank_wait_ratio", RANK, "wait_ratio",
        "Share of its step that a rank waits for the others in collectives, estimated from stack samples."),
    Metric(
        "tuimon_rank_late_ratio", RANK, "late_ratio",
        "Share of its step by which a rank's own work takes longer than the others', which wait for it; estimated."),
    Metric("tuimon_rank_restarts_total", RANK, "restarts", "How often a rank was started again."),

    # a rank and its GPU
    Metric(
        "tuimon_launch_lead_seconds", (*RANK, "boundary"), "median_us",
        "How far launches run ahead of the GPU at a boundary of the step: median of the last 30 s."),
    Metric(
        "tuimon_gpu_idle_ratio", (*RANK, "bound"),
        {"at_least": "gpu_time.idle_at_least", "at_most": "gpu_time.idle_at_most"},
        "Share of the steps' time on the GPU's clock in which the GPU was idle: at least and at most.",
    ),
    Metric(
        "tuimon_torch_memory_allocated_bytes", (*RANK, "device"), "allocated_bytes",
        "GPU memory in tensors, by torch's allocator."),
    Metric(
        "tuimon_torch_memory_reserved_bytes", (*RANK, "device"), "reserved_bytes",
        "GPU memory kept by torch's allocator."),

    # DataLoaders: of each rank and role (train, eval) the one that was used last
    Metric("tuimon_loader_workers", (*RANK, "role"), "facts.workers", "Workers of the DataLoader."),
    Metric(
        "tuimon_loader_workers_busy_ratio", (*RANK, "role"), "busy_ratio",
        "Share of the last 30 s in which workers made batches, mean over the workers that have reported."),
    Metric(
        "tuimon_loader_ready_batches", (*RANK, "role"), "ready_mean",
        "Batches that were ready at a fetch, mean of the last 30 s."),
    Metric(
        "tuimon_loader_none_ready_ratio", (*RANK, "role"), "ready_none_ratio",
        "Share of the fetches of the last 30 s that found no batch ready."),
    Metric(
        "tuimon_loader_fetch_wait_seconds", (*RANK, "role"), "wait_ms",
        "How long the training waited for a batch, mean of the last 30 s."),

    # GPUs, as the driver reports them
    Metric("tuimon_gpu_info", (*GPU, "model"), "", "Always 1; the labels describe the GPU."),
    Metric("tuimon_gpu_used_by_run", GPU, "used_by_run", "1 if the run uses the GPU."),
    Metric(
        "hw_gpu_utilization_ratio", GPU, "latest.util_ratio",
        "Share of time in which some kernel was running, as last read.", (("hw_gpu_task", "general"),)),
    Metric("hw_gpu_memory_usage_bytes", GPU, "latest.memory_used_bytes", "GPU memory in use."),
    Metric("hw_gpu_memory_limit_bytes", GPU, "latest.memory_total_bytes", "Size of the GPU memory."),
    Metric("hw_gpu_memory_utilization_ratio", GPU, "latest.memory_ratio", "Share of the GPU memory in use."),
    Metric("hw_power_watts", GPU, "latest.power_w", "Power of the GPU, mean of the last second.", _IS_GPU),
    Metric("hw_energy_joules_total", GPU, "latest.energy_j", "Energy since the driver was loaded.", _IS_GPU),
    Metric("hw_temperature_celsius", GPU, "latest.temperature_c", "Temperature of the GPU.", _IS_GPU),
    Metric(
        "hw_errors_total", GPU, "latest.ecc_errors",
        "Uncorrected memory errors since the driver was loaded.", (*_IS_GPU, ("error_type", "uncorrected_ecc"))),
    Metric("tuimon_gpu_power_limit_watts", GPU, "latest.power_limit_w", "Limit of the GPU's power."),
    Metric("tuimon_gpu_sm_clock_hertz", GPU, "latest.sm_clock_mhz", "Clock of the multiprocessors, as last read."),
    Metric("tuimon_gpu_sm_ratio", GPU, "latest.sm_ratio", "Share of the multiprocessors that were busy, as last read."),
    Metric(
        "tuimon_gpu_occupancy_ratio", GPU, "latest.occupancy_ratio",
        "Resident warps as a share of the most possible, as last read."),
    Metric(
        "tuimon_gpu_tensor_ratio", GPU, "latest.tensor_ratio",
        "Share of time in which the tensor pipes were busy, as last read."),
    Metric(
        "tuimon_gpu_dram_ratio", GPU, "latest.dram_ratio",
        "Memory bandwidth in use as a share of the peak, as last read."),
    Metric(
        "tuimon_gpu_pcie_bytes_per_second", (*GPU, "direction"),
        {"receive": "latest.pcie_rx_bytes_per_s", "transmit": "latest.pcie_tx_bytes_per_s"},
        "PCIe traffic to the GPU (receive) and from it (transmit), as last read."),
    Metric(
        "tuimon_gpu_nvlink_bytes_per_second", (*GPU, "direction"),
        {"receive": "latest.nvlink_rx_bytes_per_s", "transmit": "latest.nvlink_tx_bytes_per_s"},
        "NVLink traffic to the GPU (receive) and from it (transmit), as last read."),
    Metric(
        "tuimon_gpu_throttled_ratio", (*GPU, "cause"), "",
        "Share of the last 30 s in which a cause held the clocks down."),
    Metric(
        "tuimon_gpu_step_energy_joules", GPU, "joules_per_step",
        "Energy of a step: of all GPUs of the first rank, on the first of them."),

    # findings of the rules
    Metric("tuimon_finding", ("rule", "severity"), "", "1 for each rule with a finding now; absent otherwise."),
    Metric(
        "tuimon_finding_share_ratio", ("rule",), "share_of_step",
        "Share of the step that a finding takes; an upper bound if that is idle time of the GPU."),
    Metric(
        "tuimon_finding_speedup_ratio", ("rule",), "estimated_speedup",
        "Step time now divided by the estimated step time with the best fix."),

    # tuimon itself
    Metric("tuimon_monitor_cpu_ratio", (), "session.cost.cpu_ratio", "CPU of tuimon with its samplers; 1 is one core."),
    Metric("tuimon_monitor_memory_bytes", (), "session.cost.rss_bytes", "Resident memory of tuimon."),
    Metric("tuimon_monitor_records_dropped_total", (), "session.cost.queue_dropped", "Records lost to a full queue."),
)
# fmt: on

#: Seconds that a scrape waits for a new snapshot before it gets the previous one: the monitor ticks at least twice a
#: second, but may be stopped, or behind.
FRESH_S = 2.0
#: Upper bounds of the histogram of steps, as Prometheus writes them.
_BOUNDS = (*map(str, STEP_BOUNDS), "+Inf")
#: Unit at the end of a field's name -> factor to Prometheus's unit.
_UNITS = {"ms": 1e-3, "us": 1e-6, "mhz": 1e6}
#: Label names -> the rows of a report that have these labels, each with its label values.
_Rows = dict[tuple[str, ...], list[tuple[tuple[str, ...], object]]]


Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
#: The metrics with samples at one moment; later moments do not change it.
Snapshot = tuple[Family, ...]


class Snapshots:
    """Hands the latest snapshot from the monitor's thread to others.

    A snapshot is taken when somebody waits for one: without a scrape the metrics cost nothing.
    """

    def __init__(self) -> None:
        self._ranks = RankLabels()
        self._changed = threading.Condition()
        self._wanted = False
        self._latest: Snapshot | None = None
        self._closed = False

    def offer(self, session: Session, findings: Sequence[Finding], *, last: bool = False) -> None:
        """Take a snapshot if one is wanted, or if it is the last; from the monitor's thread."""
        if not self._wanted and not last:
            return
        snapshot = take(session, findings, self._ranks)
        with self._changed:
            self._latest, self._wanted, self._closed = snapshot, False, last
            self._changed.notify_all()

    def fresh(self, timeout_s: float = FRESH_S) -> Snapshot | None:
        """A snapshot taken after this call; if none comes in time, the latest. None before the first."""
        with self._changed:
            if not self._closed:
                before, self._wanted = self._latest, True
                self._changed.wait_for(lambda: self._latest is not before or self._closed, timeout_s)
            return self._latest

    def collect(self) -> Snapshot:
        """Called by the library at each scrape."""
        return self.fresh() or ()


def take(session: Session, findings: Sequence[Finding], labels: RankLabels) -> Snapshot:
    """All metrics with a known value now."""
    rows = _rows(parts_of(session.over("recent")), findings, labels)
    return tuple(family for metric in METRICS if (family := _family(metric, rows)).samples)


def _family(metric: Metric, rows: _Rows) -> Family:
    """A sample for each row that has the value; if rows lack the last label, one for each value of that label."""
    make = {"counter": CounterMetricFamily, "histogram": HistogramMetricFamily}.get(metric.kind, GaugeMetricFamily)
    family: Family = make(metric.name.removesuffix("_total"), metric.help, labels=metric.all_labels)
    constants = [value for _, value in metric.constants]
    of_each = isinstance(metric.of, Mapping) or metric.labels not in rows
    for labels, row in rows[metric.labels[:-1] if of_each else metric.labels]:
        values: Mapping[str, object]
        if isinstance(metric.of, Mapping):
            values = {label: _value(row, path) for label, path in metric.of.items()}
        else:
            value = _value(row, metric.of)
            values = value if isinstance(value, dict) else {"": value}
        for label, value in values.items():
            # names of GPUs take about 40 characters, UUIDs of MIG instances 100
            bounded = [text[:128] for text in ((*labels, label) if of_each else labels)] + constants
            if isinstance(value, SinceStart):
                buckets = list(zip(_BOUNDS, accumulate(value.timed_counts), strict=True))
                family.add_metric(bounded, buckets, value.timed_s)
            elif isinstance(value, int | float):
                family.add_metric(bounded, float(value))
    return family


def _value(row: object, path: str) -> object:
    """The attribute at the end of the path, in Prometheus's unit; None if an attribute on the way is None."""
    for name in path.split(".") if path else ():
        row = getattr(row, name, None)
    unit = _UNITS.get(path.rpartition("_")[2], 1.0)
    return row * unit if isinstance(row, int | float) else row


def _rows(now: Parts, findings: Sequence[Finding], labels: RankLabels) -> _Rows:
    run, ranks = now.run, labels.of(now.ranks)
    gpus = [
        ((gpu.latest.uuid, str(gpu.latest.index)), gpu)
        for gpu, row in zip(now.gpus, now.view.all_gpus(), strict=True)
        if not row.is_old  # its driver answers
    ]
    states = Counter(rank.state for rank in now.ranks)
    about = (run.name or "", run.host or "", run.mode or "", run.versions.get("tuimon", ""))
    found = {finding.rule: finding for finding in reversed(findings)}  # the first finding of each rule
    return {
        (): [((), now)],
        ("run", "host", "mode", "version"): [(about, 1)] if run.host is not None else [],
        ("part",): [((part.name,), part) for part in (now.goodput.parts if now.goodput is not None else ())],
        RANK: [((label,), rank) for label, rank in ranks],
        (*RANK, "file_system"): [
            ((label, rank.checkpoints.file_system), 1)
            for label, rank in ranks
            if rank.checkpoints is not None and rank.checkpoints.file_system
        ],
        (*RANK, "boundary"): [
            ((label, lead.boundary), lead)
            for label, rank in ranks
            for lead in (rank.gpu_time.leads if rank.gpu_time is not None else ())
        ],
        (*RANK, "device"): [((label, str(row.device)), row) for label, rank in ranks for row in rank.torch_memory],
        # a loader's number is not a label: a program may make a new one for every epoch
        (*RANK, "role"): [
            ((label, role), loader)
            for label, rank in ranks
            for role, loader in {
                each.role or "unknown": each for each in sorted(rank.loaders, key=lambda each: -each.idle_s)
            }.items()
        ],
        ("state",): [((state,), states[state]) for state in get_args(RankState) if any(states[s] for s in states if s)],
        GPU: list(gpus),
        (*GPU, "model"): [((*labels, gpu.latest.name), 1) for labels, gpu in gpus],
        (*GPU, "cause"): [
            ((*labels, cause), ratio)
            for labels, gpu in gpus
            for cause, ratio in gpu.throttled[:8]  # the driver knows eight
        ],
        ("rule",): [((rule,), finding) for rule, finding in found.items()],
        ("rule", "severity"): [((rule, finding.severity), 1) for rule, finding in found.items()],
    }


class RankLabels:
    """Hands out labels. A rank that is started again takes over the label of its ended process.

    A process without a rank gets the lowest free number: alone it is rank 0. If two have the same rank, as two
    trainings in one command do, the second is ``0.1``.
    """

    def __init__(self) -> None:
        self._labels: dict[tuple[str | None, int], str] = {}  # by host and pid

    def of(self, ranks: Sequence[Rank]) -> list[tuple[str, Rank]]:
        """The training processes that are alive with their labels; when none is left, those that ended last."""
        last_s = max((rank.ended_s or 0.0 for rank in ranks), default=0.0) - LAST_MOMENT_S
        live = [rank for rank in ranks if rank.ended_s is None]
        shown = {(rank.host, rank.pid): rank for rank in live or ranks if not rank.ended_s or rank.ended_s >= last_s}
        self._labels = {key: label for key, label in self._labels.items() if key in shown}
        for key, rank in shown.items():
            if key not in self._labels:
                taken, own = set(self._labels.values()), rank.rank
                names = map(str, count()) if own is None else (f"{own}.{n}" if n else str(own) for n in count())
                self._labels[key] = next(name for name in names if name not in taken)
        return [(self._labels[key], rank) for key, rank in shown.items()]


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
        """Take a snapshot if one is wanted; returns notices on changes of the server."""
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
        registry = CollectorRegistry(auto_describe=False)  # of these metrics alone, without the library's own
        registry.register(self._snapshots)
        server.set_app(make_wsgi_app(registry, disable_compression=True))
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
