"""Several records of one kind and subject as one over all their time: sums, counts, extremes and quantiles stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import structs

from tuimon.records import Cost, Gil, Gpu, GpuTime, Loader, MachineMemory, Record, Stacks, Steps, Threads, TorchMemory
from tuimon.sources.log.coarse import rows, rules
from tuimon.sources.log.coarse.rules import Rule

R = TypeVar("R", bound=Record)
#: How much time a merged record is of.
SPAN_S = 10.0


def merged(records: Sequence[R]) -> R:
    """One record for all of these: of one type, process and subject, oldest first, with nothing between them."""
    newest = records[-1]
    if len(records) == 1:
        return newest
    fields = {name: rule(name, records) for name, rule in RULES[type(newest)].items()}
    return structs.replace(newest, **fields)


#: How each field of a record comes from those of several; ``t``, ``pid`` and what they are about are the newest's.
RULES: dict[type[Record], dict[str, Rule]] = {
    Steps: {
        **dict.fromkeys(("count", "total_ns", "eval_count", "backwards", "updates", "dropped"), rules.total),
        **dict.fromkeys(("slowed", "slowed_ns", "outside_s"), rules.total),
        **dict.fromkeys(("gc_ns", "gc_count"), rules.total),
        **dict.fromkeys(("first_backward_s", "first_step_s"), rules.first_known),
        **dict.fromkeys(("open_phase", "open_for_s", "tid", "last_step_s"), rules.last),
        "window_s": rules.seconds,
        "first_index": rules.first,
        "timed": rows.timed,
        "min_ns": rules.least,
        "median_ns": rows.quantile(0.5),
        "p95_ns": rows.quantile(0.95),
        "histogram": rows.histogram,
        "phases": rows.phases,
        "ranges": rows.ranges,
        "range_places": rules.distinct,
        "slowest": rows.slowest,
        "rank_steps": rows.rank_steps,
        "gc_longest_ns": rules.most,
    },
    Loader: {
        **dict.fromkeys(("fetches", "counted", "wait_ns", "ready_fetches", "ready_total", "ready_none"), rules.total),
        **dict.fromkeys(("starts", "start_ns", "iter_ns", "ends", "end_ns"), rules.total),
        **dict.fromkeys(("role", "ready_last", "facts"), rules.last_known),
        "window_s": rules.seconds,
        "p95_ns": rows.fetch_p95,
        "waits_for_s": rules.last,
        "workers": rows.workers,
        "batches": rows.batches,
    },
    Stacks: {
        **dict.fromkeys(("samples", "folded", "failed", "cycles"), rules.total),
        "window_s": rules.seconds,
        "cost_cpu_s": rules.seconds,
        "rate_hz": rows.rate,
        "stacks": rows.stacks,
        "lost": rules.last,
        "in_process": rules.last,
        "parked": rules.distinct,
        "loop": rows.loop,
        "blocks": rows.blocks,
    },
    Gil: {"samples": rules.total, "threads": rows.gil, "functions": rows.gil_functions},
    Threads: {
        "window_s": rules.seconds,
        "cpu_ratio": rules.mean,
        "rss_bytes": rules.last,
        "threads": rows.threads,
        "folded": rules.last,
        "ended_cpu_s": rules.seconds,
    },
    Gpu: {
        **dict.fromkeys(("util_ratio", "sm_ratio", "occupancy_ratio", "tensor_ratio", "dram_ratio"), rules.mean),
        **dict.fromkeys(("power_w", "sm_clock_mhz", "cost_ms"), rules.mean),
        **dict.fromkeys(("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"), rules.mean),
        **dict.fromkeys(("nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"), rules.mean),
        **dict.fromkeys(("memory_used_bytes", "power_instant_w", "temperature_c", "memory_temperature_c"), rules.most),
        **dict.fromkeys(("memory_total_bytes", "power_limit_w", "sm_clock_max_mhz"), rules.last_known),
        **dict.fromkeys(("pcie_generation", "pcie_width"), rules.last_known),
        **dict.fromkeys(("compute_capability", "energy_j", "ecc_errors", "parent_uuid"), rules.last_known),
        **dict.fromkeys(("index", "uuid", "name", "throttle", "pids", "processes", "chosen"), rules.last),
        "util_samples": rules.nothing,  # they are in the mean
        "throttled": rows.throttled,
        "xids": rules.joined,
    },
    GpuTime: {
        **dict.fromkeys(("steps", "total_ns", "given_up"), rules.total),
        **dict.fromkeys(("device", "bounded"), rules.last),
        "window_s": rules.seconds,
        "phases": rows.gpu_phases,
        "leads": rows.leads,
        "lead_error_us": rules.last_known,
        "exchanges": rows.exchanges,
        "accumulation": rows.accumulation,
    },
    TorchMemory: {
        **dict.fromkeys(("device", "allocated_bytes", "reserved_bytes"), rules.last),
        **dict.fromkeys(("alloc_retries", "ooms", "device_frees", "pinned_bytes"), rules.last),
        "peak_bytes": rules.most,
    },
    MachineMemory: {
        **dict.fromkeys(("total_bytes", "available_bytes", "limit_bytes", "limit_used_bytes"), rules.last),
        "cpu_limit_cores": rules.last,
        **dict.fromkeys(("swap_in_bytes_per_s", "swap_out_bytes_per_s", "stalled_ratio"), rules.mean),
        **dict.fromkeys(("busy_cores", "stolen_cores", "held_cores"), rules.mean),
        "window_s": rules.seconds,
    },
    Cost: {
        **dict.fromkeys(("cpu_ratio", "sampler_cpu_ratio"), rules.mean),
        **dict.fromkeys(("rss_bytes", "queue_dropped"), rules.most),
        "window_s": rules.seconds,
    },
}


def subject(record: Record) -> tuple[object, ...] | None:
    """What a record is about: those of one subject can be merged; None where a record stands for itself."""
    match record:
        case Loader():
            return Loader, record.pid, record.number, record.role
        case Stacks():
            return Stacks, record.pid, record.lost, record.in_process, record.cycles is None
        case Gpu():
            return Gpu, record.uuid, record.chosen
        case GpuTime():
            return GpuTime, record.pid, record.device, record.bounded
        case TorchMemory():
            return TorchMemory, record.pid, record.device
        case _:
            return (type(record), record.pid) if type(record) in RULES else None


def follows(record: Record, before: Record) -> bool:
    """Whether nothing is missing between two records of one subject: otherwise they stay two."""
    match record, before:
        case Steps(), Steps():
            return record.first_index == before.first_index + before.count
        case Loader(), Loader():
            return record.t - record.window_s <= before.t + record.window_s / 2
        case Stacks(), Stacks():
            return record.window_s + before.window_s <= SPAN_S  # longer ones are coarse enough
        case _:
            return True
