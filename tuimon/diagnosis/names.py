"""The names that findings may bear: rules, causes and severities, as reports and ``--fail-on`` spell them."""

from __future__ import annotations

from typing import get_args

from tuimon.diagnosis.finding import Severity

SEVERITIES: frozenset[str] = frozenset(get_args(Severity))
CAUSES = frozenset(
    [
        "no_workers",
        "workers_saturated",
        "slow_item",
        "slow_collate",
        "sampler",
        "disk_wait",
        "hand_rolled_loader",
        "evaluation",
    ]
)
RULE_NAMES = frozenset(
    [
        "input_bound",
        "transfer_bound",
        "sync_point",
        "launch_bound",
        "queue_full",
        "spin_wait",
        "compute_bound",
        "compute_bound_cpu",
        "optimizer_bound",
        "side_work",
        "cpu_oversubscribed",
        "gil_contention",
        "gc_pauses",
        "allocator_retries",
        "memory_pressure",
        "throttled",
        "low_precision_unused",
        "small_batch",
        "straggler_rank",
        "comm_bound",
        "neighbour",
        "warmup",
        "step_time_drift",
        "hang",
    ]
)
FINDING_NAMES = RULE_NAMES | CAUSES | SEVERITIES
