"""Sessions for tests of metrics, and samples by name."""

from collections.abc import Sequence

from msgspec import structs

from tests.session import records
from tests.views.streams import INPUT_BOUND, SIDE_WORK, gpu, gpu_time
from tuimon.diagnosis.finding import Finding
from tuimon.records import (
    Cost,
    Loader,
    LoaderFacts,
    LoaderWorker,
    Record,
    Throttle,
    TorchMemory,
    TracedFlops,
    TraceTaken,
)
from tuimon.session.session import Session
from tuimon.views.prometheus import METRICS, RankLabels, take

FINDINGS = (INPUT_BOUND, SIDE_WORK)
PHASES = {"data": 62, "forward": 11, "backward": 16, "optimizer": 6, "other": 5}
FULL_GPU = {
    "sm_ratio": 0.5, "occupancy_ratio": 0.4, "tensor_ratio": 0.3, "dram_ratio": 0.2, "energy_j": 5000.0,
    "pcie_rx_bytes_per_s": 1e9, "pcie_tx_bytes_per_s": 2e9, "nvlink_rx_bytes_per_s": 3e9, "nvlink_tx_bytes_per_s": 4e9,
    "ecc_errors": 0, "throttled": [Throttle("power cap", 0.25)],
}  # fmt: skip


def whole_session(ranks: int = 2, windows: int = 12) -> Session:
    """A run in which everything is measured."""
    facts = {"begin_s": 1.0, "end_s": 2.0, "steps": 2, "wanted": 2, "file": "t.json.gz"}
    flops = [TracedFlops("product", "bfloat16", 2 * 10**13)]
    return records.session_of(
        records.header(),
        [records.process(_pid(n), rank=n, gpu_uuids=[f"GPU-{n}"], planned_steps=1000) for n in range(ranks)],
        records.frames(("t.py", 9, "main", "torch.save(model, path)", True), ("torch/serialization.py", 1, "save")),
        [_second(t, rank) for t in range(1, windows + 1) for rank in range(ranks)],
        [TraceTaken(t=windows, pid=_pid(rank), flops=flops, **facts) for rank in range(ranks)],
    )


def _pid(rank: int) -> int:
    return 4242 + rank


def _second(t: int, rank: int) -> Sequence[Record]:
    pid = _pid(rank)
    facts = LoaderFacts(dataset="D", kind="map", workers=2, prefetch=2)
    workers = [LoaderWorker(9000 + 2 * rank + i, i, 5, 700.0, 100.0, 200.0, 0.0) for i in range(2)]
    return [
        records.steps(float(t), PHASES, first_index=10 * (t - 1), pid=pid, gc_ns=1_000_000, gc_count=1,
                      samples=320, tokens=64_000),
        records.threads(float(t), (pid, "python", 0.5, "running"), pid=pid, cpu_ratio=1.5,
                        written_bytes=(50 << 20) * (t % 4 == 0), written_to="nfs4" * (t % 4 == 0)),
        records.stacks(float(t), ([0], 30), ([0, 1], 10), pid=pid),
        Loader(t=float(t), pid=pid, number=0, window_s=1.0, role="train", fetches=10, wait_ns=620_000_000,
               ready_fetches=10, ready_total=5, ready_none=6, facts=facts, workers=workers),
        structs.replace(gpu_time(t, 300.0, 0.1, 0.2), pid=pid, bounded=True),
        TorchMemory(t=float(t), pid=pid, device=0, allocated_bytes=3 << 30, reserved_bytes=4 << 30),
        gpu(t, rank, **{**FULL_GPU, "energy_j": 5000.0 + 300 * t}),
        Cost(t=float(t), pid=0, cpu_ratio=0.02, sampler_cpu_ratio=0.01, rss_bytes=30 << 20),
    ]  # fmt: skip


def figures(session: Session, findings: Sequence[Finding] = ()) -> dict[str, dict[tuple[str, ...], float]]:
    """The metrics of a session at this moment, without fixed labels. Prometheus's name of a sample: labels: value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    fixed = {metric.name: {name for name, _ in metric.constants} for metric in METRICS}
    for sample in (sample for family in take(session, findings, RankLabels()) for sample in family.samples):
        labels = (value for name, value in sample.labels.items() if name not in fixed.get(sample.name, ()))
        found.setdefault(sample.name, {})[tuple(labels)] = sample.value
    return found
