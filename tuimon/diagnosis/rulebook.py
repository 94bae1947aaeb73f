"""The rule table: all rules, the names derived from it, and the order of findings."""

from __future__ import annotations

from tuimon.diagnosis.finding import SEVERITY, Finding, FindingJson, likely_gain
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules import compute, cores, course, input, interpreter, memory, model, ranks, side_work
from tuimon.diagnosis.rules.gpu import devices, pace, waits

#: In the order of their findings at equal severity and share.
RULES: tuple[Rule, ...] = (
    course.warmup,
    devices.gpu_health,
    course.hang,
    input.input_bound,
    pace.launch_bound,
    waits.sync_point,
    waits.transfer_bound,
    side_work.side_work,
    interpreter.recompiles,
    compute.slow_setting,
    compute.optimizer_bound,
    ranks.straggler_rank,
    ranks.comm_bound,
    interpreter.gil_contention,
    cores.cpu_oversubscribed,
    cores.neighbour,
    course.step_time_drift,
    memory.memory_pressure,
    interpreter.gc_pauses,
    memory.allocator_retries,
    devices.throttled,
    devices.idle_gpu,
    devices.placement,
    pace.low_precision_unused,
    waits.unexplained_idle,
    waits.queue_full,
    waits.spin_wait,
    pace.compute_bound,
    model.compute_bound_cpu,
    pace.small_batch,
    course.not_ended,
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


def is_minor(finding: Finding | FindingJson) -> bool:
    """True if a finding's fix gains too little to be the headline of a run."""
    return finding.severity == "info" and BY_NAME[finding.rule].contradicts_order


def _rank(finding: Finding) -> tuple[int, bool, bool, bool, float]:
    rule = BY_NAME[finding.rule]
    severity = "info" if rule.only_in_order and finding.severity == "benign" else finding.severity
    gravity, is_no_headline = SEVERITY[severity], is_minor(finding)
    return gravity, not rule.is_harm, rule.from_outside, is_no_headline, -likely_gain(finding)
