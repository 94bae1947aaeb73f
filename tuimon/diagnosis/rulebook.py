"""The rule table: all rules, the names derived from it, and the order of findings."""

from __future__ import annotations

from tuimon.diagnosis.finding import SEVERITY, Finding, likely_gain
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules import comm, cores, course, hang, input, interpreter, memory, side_work, stragglers
from tuimon.diagnosis.rules.compute import cpu, optimizer, recompiles, settings
from tuimon.diagnosis.rules.gpu import busy, copy, devices, health, launches, pace, sync

#: In the order of their findings at equal severity and share.
RULES: tuple[Rule, ...] = (
    course.WARMUP,
    health.GPU_HEALTH,
    hang.HANG,
    input.INPUT_BOUND,
    launches.LAUNCH_BOUND,
    sync.SYNC_POINT,
    copy.TRANSFER_BOUND,
    side_work.SIDE_WORK,
    recompiles.RECOMPILES,
    settings.SLOW_SETTING,
    optimizer.OPTIMIZER_BOUND,
    stragglers.STRAGGLER_RANK,
    comm.COMM_BOUND,
    interpreter.GIL_CONTENTION,
    cores.CPU_OVERSUBSCRIBED,
    cores.NEIGHBOUR,
    course.STEP_TIME_DRIFT,
    memory.MEMORY_PRESSURE,
    interpreter.GC_PAUSES,
    memory.ALLOCATOR_RETRIES,
    health.THROTTLED,
    devices.IDLE_GPU,
    devices.PLACEMENT,
    busy.LOW_PRECISION_UNUSED,
    pace.UNEXPLAINED_IDLE,
    pace.QUEUE_FULL,
    pace.SPIN_WAIT,
    busy.COMPUTE_BOUND,
    cpu.COMPUTE_BOUND_CPU,
    busy.SMALL_BATCH,
    hang.NOT_ENDED,
)
BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}

SEVERITIES: frozenset[str] = frozenset(SEVERITY)
RULE_NAMES: frozenset[str] = frozenset(BY_NAME)
CAUSES: frozenset[str] = frozenset(cause for rule in RULES for cause in rule.causes)
#: The names that ``--fail-on`` accepts.
FINDING_NAMES: frozenset[str] = RULE_NAMES | CAUSES | SEVERITIES


def ranked(findings: list[Finding]) -> list[Finding]:
    """The findings by severity, then by gain: the first is what to fix first; among equals, a threat to the run leads.

    Causes outside the run come after those inside. A loop in order, with its GPU or CPU as the bottleneck, comes before
    benign findings, and before those not worth a fix.
    """
    return sorted(findings, key=_rank)


def is_minor(rule: str, severity: str) -> bool:
    """True if a finding's fix gains too little to be the headline of a run."""
    return severity == "info" and rule in BY_NAME and BY_NAME[rule].contradicts_order


def _rank(finding: Finding) -> tuple[int, bool, bool, bool, float]:
    rule = BY_NAME[finding.rule]
    severity = rule.ranked_as if rule.ranked_as and finding.severity == "benign" else finding.severity
    gravity, is_no_headline = SEVERITY[severity], is_minor(finding.rule, finding.severity)
    return gravity, not rule.is_harm, rule.from_outside, is_no_headline, -likely_gain(finding)
