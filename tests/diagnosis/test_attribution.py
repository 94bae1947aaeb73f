"""Which of two findings time belongs to, and which comes first: on literal findings, and on all recorded runs."""

import re

import pytest
from msgspec.structs import replace

from tests.verdicts import ACCEPTED
from tuimon.diagnosis.attribution import attributed
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rulebook import BY_NAME, ranked
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
    much, little = (
        replace(finding("side_work", share=0.1), fixes=(Fix("less", gain, Interval(gain, gain)),))
        for gain in (1.4, 1.1)
    )
    assert order(much, finding("input_bound", share=0.2)) == ["side_work", "input_bound"]
    assert order(little, finding("input_bound", share=0.2)) == ["input_bound", "side_work"]
    assert order(finding("input_bound", share=0.9), finding("memory_pressure")) == ["memory_pressure", "input_bound"]


def test_what_is_not_worth_a_fix_neither_contradicts_that_a_loop_is_in_order_nor_comes_before_that():
    minor = replace(finding("input_bound", "info", 0.3), fixes=(Fix("more", 1.02, Interval(1.02, 1.02)),))
    assert order(minor, finding("compute_bound_cpu", "info", 0.7)) == ["compute_bound_cpu", "input_bound"]
    assert order(minor, finding("compute_bound", "benign", 0.95)) == ["compute_bound", "input_bound"]


def test_a_gpu_at_work_is_the_verdict_before_all_that_is_benign():
    benign = [finding(rule, "benign") for rule in ("spin_wait", "queue_full", "sync_point")]
    info = finding("gc_pauses", "info", 0.02)
    assert order(*benign, info, finding("compute_bound", "benign", 0.95))[:2] == ["compute_bound", "gc_pauses"]


@pytest.mark.parametrize("rule", ["launch_bound", "sync_point", "transfer_bound", "input_bound", "comm_bound"])
def test_what_holds_the_loop_up_contradicts_that_it_is_in_order(rule):
    order_bound = [finding("compute_bound", "benign", 0.9), finding("compute_bound_cpu", "info", 0.9)]
    unexplained = finding("unexplained_idle", "info", 0.5)
    assert order(*order_bound, unexplained, finding("small_batch", "info"), finding(rule, share=0.3)) == [rule]
    assert order(unexplained, finding("small_batch", "info")) == ["unexplained_idle"]  # a larger batch is a guess
    assert order(finding("small_batch", "info"), finding("compute_bound_cpu", "info", 0.9)) == ["compute_bound_cpu"]


def test_a_benign_synchronisation_contradicts_nothing():
    assert "compute_bound" in order(
        finding("compute_bound", "benign", 0.9), finding("sync_point", "benign", None, ITEM)
    )


@pytest.mark.parametrize(("sync_share", "reported"), [(0.1, "launch_bound"), (0.5, "sync_point")])
def test_of_launches_and_a_synchronisation_the_one_that_explains_more_is_reported(sync_share, reported):
    launches = finding("launch_bound", "warning", 0.8, COPY)
    sync = finding("sync_point", "warning", sync_share, ITEM, waiting_share=sync_share)
    (only,) = attributed([launches, sync], BY_NAME)
    assert only.rule == reported
    if reported == "launch_bound":
        assert only.where == (COPY, ITEM)
        assert [fix.action for fix in only.fixes] == ["do launch_bound", "do sync_point"]
        assert only.evidence == {"waiting_share": 0.1}


def test_one_line_is_reported_once():
    copy, waits = finding("transfer_bound", "critical", 0.4, COPY), finding("sync_point", "benign", None, COPY)
    assert order(copy, waits, finding("spin_wait", "benign", None, COPY)) == ["transfer_bound"]
    sync, side = finding("sync_point", "warning", 0.2, SAVE), finding("side_work", "warning", 0.2, SAVE)
    assert order(sync, side) == ["sync_point"]
    assert order(finding("sync_point", "warning", 0.2, ITEM), side) == ["sync_point", "side_work"]


def test_waiting_for_a_late_rank_is_no_communication():
    assert order(finding("straggler_rank", share=0.3), finding("comm_bound", share=0.3)) == ["straggler_rank"]


def test_a_hang_is_all_there_is_to_say():
    assert order(finding("hang", "critical"), finding("input_bound", "critical", 0.9)) == ["hang"]


def test_nothing_merged_is_nothing():
    assert attributed([], BY_NAME) == []


def test_too_few_cores_on_another_node_explain_nothing_of_the_node_in_focus():
    starved = finding("input_bound", "warning", 0.5, workers=2)
    cores = finding("cpu_oversubscribed", "warning", 0.3, cores_waited_for=2.0)
    update = finding("optimizer_bound", "warning", 0.2)
    assert order(starved, cores, update) == ["input_bound", "optimizer_bound"]
    elsewhere = replace(cores, elsewhere=True)
    assert order(starved, elsewhere, update) == ["input_bound", "cpu_oversubscribed", "optimizer_bound"]
    assert order(cores, update) == ["cpu_oversubscribed"]
    assert order(elsewhere, update) == ["cpu_oversubscribed", "optimizer_bound"]


def test_while_another_thread_holds_the_gil_for_longer_an_update_may_only_wait_for_it():
    update = finding("optimizer_bound", "warning", 0.31)
    assert order(update, finding("gil_contention", "critical", 0.27)) == ["gil_contention"]
    briefly = finding("gil_contention", "warning", 0.12)
    assert order(update, briefly) == ["optimizer_bound", "gil_contention"]


def test_while_others_hold_the_cores_for_longer_an_update_may_only_wait_for_one():
    update = finding("optimizer_bound", "warning", 0.31)
    assert order(update, finding("neighbour", "warning", 0.57, delay_ratio=0.57)) == ["neighbour"]
    briefly = finding("neighbour", "warning", 0.2, delay_ratio=0.2)
    assert order(update, briefly) == ["optimizer_bound", "neighbour"]


_CLAIM = re.compile(r"  (?:critical|warning) (\w+)(?:/\w+)?, (\d+) % of the step")


@pytest.mark.parametrize("corpus", sorted(ACCEPTED.glob("*.txt")), ids=lambda path: path.stem)
def test_claims_on_a_recorded_step_add_up_to_no_more_than_it(corpus):
    for run in corpus.read_text().split("\n\n"):
        claims = [int(share) for rule, share in _CLAIM.findall(run) if BY_NAME[rule].contradicts_order]
        assert sum(claims) <= 105, run


def test_that_a_run_is_kept_from_cores_that_are_there_is_said_by_itself():
    starved = finding("input_bound", "warning", 0.5, workers=2)
    cores = finding("cpu_oversubscribed", "critical", 0.3, cores_waited_for=2.0, kept_to="core 0 of 16")
    assert order(starved, cores) == ["cpu_oversubscribed", "input_bound"]
