"""The rule table: every rule there is, and the names that follow from it."""

from __future__ import annotations

from typing import get_args

from tuimon.diagnosis.finding import Severity
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules import (
    after,
    collections,
    comm,
    cores,
    course,
    gil,
    hang,
    memory,
    neighbour,
    side_work,
    slower_run,
    start,
    stragglers,
)
from tuimon.diagnosis.rules.compute import cpu, optimizer, recompiles, settings
from tuimon.diagnosis.rules.gpu import copy, devices, launches, pace, state, sync
from tuimon.diagnosis.rules.input import waiting

#: In their order among findings of equal severity and share.
RULES: tuple[Rule, ...] = (
    start.WARMUP,
    hang.HANG,
    waiting.INPUT_BOUND,
    launches.LAUNCH_BOUND,
    sync.SYNC_POINT,
    copy.TRANSFER_BOUND,
    side_work.SIDE_WORK,
    recompiles.RECOMPILES,
    settings.SLOW_SETTING,
    optimizer.OPTIMIZER_BOUND,
    stragglers.STRAGGLER_RANK,
    comm.COMM_BOUND,
    gil.GIL_CONTENTION,
    cores.CPU_OVERSUBSCRIBED,
    neighbour.NEIGHBOUR,
    course.STEP_TIME_DRIFT,
    memory.MEMORY_PRESSURE,
    collections.GC_PAUSES,
    state.ALLOCATOR_RETRIES,
    state.THROTTLED,
    state.SMALL_BATCH,
    devices.IDLE_GPU,
    devices.PLACEMENT,
    state.LOW_PRECISION_UNUSED,
    pace.QUEUE_FULL,
    sync.SPIN_WAIT,
    pace.COMPUTE_BOUND,
    cpu.COMPUTE_BOUND_CPU,
    after.NOT_ENDED,
    slower_run.SLOWER_RUN,
)
BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}

SEVERITIES: frozenset[str] = frozenset(get_args(Severity))
RULE_NAMES: frozenset[str] = frozenset(BY_NAME)
CAUSES: frozenset[str] = frozenset(cause for rule in RULES for cause in rule.causes)
#: The names that ``--fail-on`` accepts.
FINDING_NAMES: frozenset[str] = RULE_NAMES | CAUSES | SEVERITIES
