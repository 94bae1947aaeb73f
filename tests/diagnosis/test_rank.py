"""Which finding comes first: on literal findings."""

from msgspec.structs import replace

from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.ledger.attribute import attributed
from tuimon.diagnosis.rank import ranked
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.records import Place

ITEM, COPY, SAVE = (Place("train.py", line, "main") for line in (45, 41, 47))


def finding(rule, severity="warning", share=None, *where, **evidence):
    return Finding(
        rule=rule, severity=severity, headline=rule, fixes=(Fix(f"do {rule}"),), share_of_step=share, where=where,
        evidence=evidence,
    )  # fmt: skip


def order(*findings):
    return [f.rule for f in ranked(attributed(findings, BY_NAME))]


def test_severity_first_then_gain_and_what_comes_from_outside_last():
    throttled, neighbour = finding("throttled", share=0.9), finding("neighbour", share=0.8)
    small, grave = finding("side_work", share=0.2), finding("input_bound", "critical", 0.1)
    assert order(throttled, neighbour, small, grave) == ["input_bound", "side_work", "throttled", "neighbour"]
    much, little = (replace(finding("side_work", share=0.1), fixes=(Fix("less", low=gain),)) for gain in (1.4, 1.1))
    assert order(much, finding("input_bound", share=0.2)) == ["side_work", "input_bound"]
    assert order(little, finding("input_bound", share=0.2)) == ["input_bound", "side_work"]
    assert order(finding("input_bound", share=0.9), finding("memory_pressure")) == ["memory_pressure", "input_bound"]


def test_what_is_not_worth_a_fix_neither_contradicts_that_a_loop_is_in_order_nor_comes_before_that():
    minor = replace(finding("input_bound", "info", 0.3), fixes=(Fix.by("more", 1.02),))
    assert order(minor, finding("compute_bound_cpu", "info", 0.7)) == ["compute_bound_cpu", "input_bound"]
    assert order(minor, finding("compute_bound", "benign", 0.95)) == ["compute_bound", "input_bound"]


def test_a_gpu_at_work_is_the_verdict_before_all_that_is_benign():
    benign = [finding(rule, "benign") for rule in ("spin_wait", "queue_full", "sync_point")]
    info = finding("gc_pauses", "info", 0.02)
    assert order(*benign, info, finding("compute_bound", "benign", 0.95))[:2] == ["compute_bound", "gc_pauses"]
