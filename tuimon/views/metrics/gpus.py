"""Metrics of the GPUs, as the driver reports them."""

from __future__ import annotations

from collections.abc import Iterator

from tuimon.records import Gpu
from tuimon.session.rows import GpuRow
from tuimon.session.session import Session
from tuimon.session.windows import WINDOW_S
from tuimon.views.metrics import table
from tuimon.views.metrics.metric import Metric, Sample, known, label_value

#: Most causes of throttling of one GPU: the driver knows eight.
_CAUSES = 8
#: Figures of the latest record that are exported as they are: metric, field, unit of the field in that of the metric.
_FIELDS: tuple[tuple[Metric, str, float], ...] = (
    (table.GPU_UTILIZATION, "util_ratio", 1.0),
    (table.GPU_MEMORY, "memory_used_bytes", 1.0),
    (table.GPU_MEMORY_LIMIT, "memory_total_bytes", 1.0),
    (table.GPU_POWER, "power_w", 1.0),
    (table.GPU_POWER_LIMIT, "power_limit_w", 1.0),
    (table.GPU_ENERGY, "energy_j", 1.0),
    (table.GPU_TEMPERATURE, "temperature_c", 1.0),
    (table.GPU_ERRORS, "ecc_errors", 1.0),
    (table.GPU_SM_CLOCK, "sm_clock_mhz", 1e6),
    (table.GPU_SM, "sm_ratio", 1.0),
    (table.GPU_OCCUPANCY, "occupancy_ratio", 1.0),
    (table.GPU_TENSOR, "tensor_ratio", 1.0),
    (table.GPU_DRAM, "dram_ratio", 1.0),
)
_TRAFFIC = (
    (table.GPU_PCIE, "receive", "pcie_rx_bytes_per_s"),
    (table.GPU_PCIE, "transmit", "pcie_tx_bytes_per_s"),
    (table.GPU_NVLINK, "receive", "nvlink_rx_bytes_per_s"),
    (table.GPU_NVLINK, "transmit", "nvlink_tx_bytes_per_s"),
)


def gpu_samples(session: Session) -> Iterator[Sample]:
    """All GPUs and MIG instances, on all nodes of the run, that the driver has reported in the last 30 s."""
    for node in sorted(session.nodes.known) or [session.focus_node]:
        for row in session.gpus(node):
            if row.stale_s <= WINDOW_S:
                yield from _row_samples(row)


def _row_samples(row: GpuRow) -> Iterator[Sample]:
    gpu = row.latest
    labels = (label_value(gpu.uuid), str(gpu.index))
    yield Sample(table.GPU_INFO, (*labels, label_value(gpu.name)), 1)
    yield Sample(table.GPU_USED, labels, float(row.used_by_run))
    for metric, field, unit in _FIELDS:
        yield from known(metric, labels, getattr(gpu, field), unit)
    yield from known(table.GPU_MEMORY_SHARE, labels, _memory_ratio(gpu))
    for metric, direction, field in _TRAFFIC:
        yield from known(metric, (*labels, direction), getattr(gpu, field))
    for cause, ratio in row.throttled[:_CAUSES]:
        yield Sample(table.GPU_THROTTLED, (*labels, label_value(cause)), ratio)
    yield from known(table.GPU_STEP_ENERGY, labels, row.joules_per_step)


def _memory_ratio(gpu: Gpu) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return gpu.memory_used_bytes / gpu.memory_total_bytes
