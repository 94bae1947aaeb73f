"""What a scrape costs: a snapshot of the session, and the text that Prometheus reads, by the number of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

from prometheus_client import generate_latest

from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.records import (
    Gpu,
    GpuPhase,
    GpuTime,
    Header,
    Lead,
    Loader,
    LoaderFacts,
    LoaderWorker,
    PhaseTime,
    Process,
    Record,
    Steps,
    TorchMemory,
    length_bucket,
)
from tuimon.session.session import Session
from tuimon.views.prometheus import RankLabels, Snapshot, take

RANKS = (1, 64)
#: Windows of each rank, of a second.
WINDOWS = 60
_PHASES = ("data", "forward", "backward", "optimizer", "other")
_BOUNDARIES = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


def measure(repeats: int, say: Say) -> list[Row]:
    """For each number of ranks, each with a GPU and a loader: ms of CPU, and the size."""
    rows: list[Row] = []
    for ranks in RANKS:
        say(f"a scrape of {ranks} ranks")
        session, labels = synthetic_session(ranks), RankLabels()
        text = text_of(take(session, (), labels))
        series = sum(1 for line in text.splitlines() if not line.startswith(b"#"))
        name = f"a scrape, {ranks} {'rank' if ranks == 1 else 'ranks'}, {series} series"
        taking = [_ms(lambda: take(_touched(session), (), labels)) for _ in range(repeats)]  # noqa: B023
        whole = [_ms(lambda: text_of(take(_touched(session), (), labels))) for _ in range(repeats)]  # noqa: B023
        rows.append(Row(name, None, Spread.of(whole), unit="ms"))
        rows.append(Row("  of it in the monitor's own thread", None, Spread.of(taking), unit="ms"))
        rows.append(Row("  its size", None, Spread.of([len(text) / 1e3]), unit="kB"))
    return rows


def synthetic_session(ranks: int) -> Session:
    """A run in which all is measured; step times are spread over 300 buckets of the log's histogram."""
    session = Session()
    header = Header(
        t=0.0, pid=1, mode="run", command=["train.py"], host="node", wall_unix_s=1.7e9, interval_s=1.0, cpu_count=64,
        versions={"tuimon": "0"},
    )  # fmt: skip
    session.add(header)
    for rank in range(ranks):
        session.add(Process(
            t=0.0, pid=100 + rank, ppid=1, start_unix_s=1.7e9, command=["train.py"], role="trainer", markers=True,
            rank=rank, world_size=ranks, torch="2", gpu_uuids=[f"GPU-{rank}"],
        ))  # fmt: skip
    for t in range(1, WINDOWS + 1):
        for rank in range(ranks):
            for record in _second(t, rank):
                session.add(record)
    return session


def _second(t: int, rank: int) -> list[Record]:
    pid, count = 100 + rank, 20
    lengths_ns = [int(50e6 * 1.01 ** ((37 * t + 13 * i + rank) % 300 - 150)) for i in range(count)]
    total_ns = sum(lengths_ns)
    leads = [Lead(name, count, 1.0, 2.0, 3.0, 0) for name in _BOUNDARIES]
    facts = LoaderFacts(dataset="D", kind="map", workers=4, prefetch=2)
    workers = [LoaderWorker(10_000 + 8 * rank + i, i, 5, 700.0, 100.0, 200.0, 0.0) for i in range(4)]
    return [
        Steps(
            t=t, pid=pid, window_s=1.0, count=count, first_index=count * (t - 1), total_ns=total_ns, backwards=count,
            updates=count, histogram=sorted((length_bucket(ns), 1) for ns in lengths_ns), gc_ns=0,
            phases=[PhaseTime(name, total_ns // len(_PHASES)) for name in _PHASES],
        ),
        Loader(
            t=t, pid=pid, number=0, window_s=1.0, role="train", fetches=count, wait_ns=10**8, ready_fetches=count,
            ready_total=count, facts=facts, workers=workers,
        ),
        Gpu(t=t, pid=0, index=rank, uuid=f"GPU-{rank}", name="GPU", util_ratio=0.9, sm_ratio=0.8, power_w=600.0,
            memory_used_bytes=1 << 36, memory_total_bytes=1 << 37, temperature_c=60.0, energy_j=600.0 * t),
        GpuTime(t=t, pid=pid, window_s=1.0, device=0, steps=8, total_ns=10**9, leads=leads, bounded=True,
                phases=[GpuPhase(name, 2 * 10**8, 10**7, 10**6) for name in _PHASES]),
        TorchMemory(t=t, pid=pid, device=0, allocated_bytes=1 << 36, reserved_bytes=1 << 36),
    ]  # fmt: skip


def text_of(snapshot: Snapshot) -> bytes:
    """The snapshot in Prometheus's text format."""
    asked = SimpleNamespace(collect=lambda: snapshot)
    return bytes(generate_latest(asked))  # type: ignore[arg-type]  (a registry is asked for nothing else)


def _touched(session: Session) -> Session:
    """As after a new window of every rank: what is kept between two of them is worked out anew."""
    for pid in session.trainers():
        stats = session.step_stats.get(pid)
        assert stats is not None
        stats._recent = stats._whole_run = None
    return session


def _ms(call: Callable[[], object]) -> float:
    begun_s = time.process_time()
    call()
    return (time.process_time() - begun_s) * 1e3
