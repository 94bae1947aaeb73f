"""Time is claimed once, and which finding comes first: on literal findings, and on all recorded runs."""

import re

import pytest
from msgspec import structs

from tests.verdicts import ACCEPTED
from tuimon.diagnosis.cells import Cell
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.judging import ClaimableTime, drop_explained, settle_claims
from tuimon.diagnosis.rulebook import BY_NAME, ranked
from tuimon.interval import Interval
from tuimon.records import Place
from tuimon.session.session import Session

#: Of a process without a step, whose time nobody claims.
NO_STEP = evidence_of(Session().over("recent").of(1))
ITEM, COPY, SAVE = (Place("train.py", line, "main") for line in (45, 41, 47))


def finding(rule, severity="warning", share=None, *where, **evidence):
    return Finding(
        rule=rule, severity=severity, headline=rule, fixes=(Fix(f"do {rule}"),), share_of_step=share, where=where,
        evidence=evidence,
    )  # fmt: skip


def order(*findings):
    return [f.rule for f in ranked(drop_explained(findings, NO_STEP))]


def test_severity_first_then_gain_and_what_comes_from_outside_last():
    throttled, neighbour = finding("throttled", share=0.9), finding("neighbour", share=0.8)
    small, grave = finding("side_work", share=0.2), finding("input_bound", "critical", 0.1)
    assert order(throttled, neighbour, small, grave) == ["input_bound", "side_work", "throttled", "neighbour"]
    much, little = (
        structs.replace(finding("side_work", share=0.1), fixes=(Fix("less", gain, Interval(gain, gain)),))
        for gain in (1.4, 1.1)
    )
    assert order(much, finding("input_bound", share=0.2)) == ["side_work", "input_bound"]
    assert order(little, finding("input_bound", share=0.2)) == ["input_bound", "side_work"]
    assert order(finding("input_bound", share=0.9), finding("memory_pressure")) == ["memory_pressure", "input_bound"]


def test_what_is_not_worth_a_fix_neither_contradicts_that_a_loop_is_in_order_nor_comes_before_that():
    minor = structs.replace(finding("input_bound", "info", 0.3), fixes=(Fix("more", 1.02, Interval(1.02, 1.02)),))
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


def held(room, *findings):
    """The findings that hold most of what they claim, by rule; ``room``: what the GPU idles at calls, or a step's."""
    return settle_claims(findings, room).kept


def idle(total, **by_phase):
    """What the GPU idles while the CPU launches something in each phase."""
    return ClaimableTime([Cell(phase, "launch", 0.2) for phase in by_phase], list(by_phase.values()), total)


def step(*found):
    """The cells of a step, with their shares."""
    return ClaimableTime(found, [cell.share for cell in found], 1.0)


def sure(rule, share, *where, fix="", **evidence):
    gains = Fix(fix or f"do {rule}", 1.3, Interval(1.3, 1.3))
    return structs.replace(finding(rule, "critical", share, *where, **evidence), fixes=(gains,))


@pytest.mark.parametrize(("sync_share", "told"), [(0.1, "launch_bound"), (0.5, "sync_point")])
def test_of_launches_and_a_synchronisation_the_one_that_explains_more_is_reported(sync_share, told):
    """Launches claim what others leave: half of it explained, it is."""
    room = idle(0.85, forward=0.4, backward=0.4, data=0.05)
    found = held(room, sure("launch_bound", 0.8, COPY), sure("sync_point", sync_share, ITEM))
    assert list(found) == [told]
    if told == "launch_bound":
        assert found[told].where == (COPY, ITEM)
        assert [fix.action for fix in found[told].fixes] == ["do launch_bound", "do sync_point"]
    else:
        assert [fix.action for fix in found[told].fixes] == ["do sync_point"]  # launches are not why the GPU waits


@pytest.mark.parametrize(("data", "wait", "told"), [(0.3, 0.2, "input_bound"), (0.2, 0.3, "sync_point")])
def test_idle_time_that_two_claim_belongs_to_the_longer(data, wait, told):
    found = held(idle(0.3, data=data, forward=0.1), sure("input_bound", data, COPY), sure("sync_point", wait, ITEM))
    assert list(found) == [told] and len(found[told].fixes) == 2 and set(found[told].where) == {COPY, ITEM}


def test_a_gpu_that_idles_behind_two_causes_has_two():
    room = idle(0.8, data=0.4, forward=0.4)
    assert list(held(room, sure("input_bound", 0.4, COPY), sure("launch_bound", 0.4, ITEM))) == [
        "input_bound",
        "launch_bound",
    ]


def test_a_claim_that_may_be_nothing_comes_after_half_as_long_a_one_that_surely_costs():
    room, side = idle(0.5, other=0.45, forward=0.05), finding("side_work", "info", 0.45, SAVE)
    assert list(held(room, side, sure("sync_point", 0.3, ITEM))) == ["sync_point"]
    assert list(held(room, side, sure("sync_point", 0.2, ITEM))) == ["side_work"]


def test_a_copy_is_why_launches_come_late_and_a_wait_at_its_line_is_that_copy():
    room = ClaimableTime([Cell("data", "copy", 0.6), Cell("forward", "launch", 0.4)], [0.6, 0.1], 0.7)
    copy = sure("transfer_bound", 0.6, COPY)
    found = held(room, copy, finding("launch_bound", "info", 0.7, ITEM), finding("sync_point", "info", 0.6, COPY))
    assert found == {"transfer_bound": copy}


def test_a_wait_that_does_no_harm_is_none_where_one_at_its_line_costs():
    copy, waits = finding("transfer_bound", "critical", 0.4, COPY), finding("sync_point", "benign", None, COPY)
    spins = finding("spin_wait", "benign", None, COPY)
    assert order(copy, waits, spins) == ["transfer_bound"]
    assert order(waits, spins) == ["sync_point", "spin_wait"]
    assert "spin_wait" in order(finding("transfer_bound", "critical", 0.4, ITEM), spins)


def test_who_makes_a_rank_late_is_told_once():
    """Those who wait know by whose wait; the late rank itself by the phase that is longer."""
    late, saves = sure("straggler_rank", 0.4, SAVE, phase="other"), sure("side_work", 0.45, SAVE)
    found = held(step(Cell("other", "io", 0.45), Cell("backward", "torch", 0.55)), late, saves)
    assert list(found) == ["straggler_rank"] and len(found["straggler_rank"].fixes) == 2
    others = step(Cell("other", "io", 0.3), Cell("backward", "io", 0.4, via=("rank",)), Cell("forward", "torch", 0.3))
    assert set(held(others, late, sure("side_work", 0.3, SAVE))) == {"straggler_rank", "side_work"}


def test_workers_without_cores_are_why_batches_come_late():
    starved = [Cell("data", "own", 0.4, via=("batch", "core")), Cell("data", "item", 0.2, via=("batch",))]
    room = step(*starved, Cell("forward", "own", 0.1, via=("core",)), Cell("forward", "torch", 0.3))
    data, cores = sure("input_bound", 0.6, COPY, workers=2), finding("cpu_oversubscribed", "warning", 0.5)
    found = held(room, data, cores)
    assert list(found) == ["input_bound"]
    assert [fix.action for fix in found["input_bound"].fixes] == ["do input_bound", "do cpu_oversubscribed"]
    kept_from_cores = structs.replace(cores, evidence={"kept_to": "core 0 of 16"})  # which is the first thing to mend
    assert set(held(room, data, kept_from_cores)) == {"input_bound", "cpu_oversubscribed"}
    assert set(held(room, data, structs.replace(cores, elsewhere=True))) == {"input_bound", "cpu_oversubscribed"}


def test_a_model_on_the_cpu_beside_an_idle_gpu_is_one_finding():
    room = step(Cell("forward", "torch", 0.5), Cell("backward", "torch", 0.5))
    left = structs.replace(finding("idle_gpu", "info"), cause="model_on_cpu")
    assert list(held(room, finding("compute_bound_cpu", "info", 1.0), left)) == ["compute_bound_cpu"]
    assert list(held(room, structs.replace(finding("compute_bound_cpu", "info", 0.3), cause="python"), left)) == [
        "compute_bound_cpu",
        "idle_gpu",
    ]


_CLAIM = re.compile(r"  (?:critical|warning) (\w+)(?:/\w+)?, (\d+) % of the step")


@pytest.mark.parametrize("corpus", sorted(ACCEPTED.glob("*.txt")), ids=lambda path: path.stem)
def test_claims_on_a_recorded_step_add_up_to_no_more_than_it(corpus):
    for run in corpus.read_text().split("\n\n"):
        claims = [int(share) for rule, share in _CLAIM.findall(run) if BY_NAME[rule].is_fault]
        assert sum(claims) <= 105, run
