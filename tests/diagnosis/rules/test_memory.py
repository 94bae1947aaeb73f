"""Memory and the garbage collector on literal sessions."""

import pytest

from tests.diagnosis.cpu import warm
from tests.session.records import frames, header, process, stacks, steps, threads
from tuimon.diagnosis import diagnose
from tuimon.diagnosis.unjudged import unjudged
from tuimon.records import MachineMemory, Threads
from tuimon.session.session import Session

GB = 1_000_000_000
MS = 1_000_000
PHASES = {"data": 1, "forward": 40, "backward": 45, "optimizer": 10, "other": 4}


def machine(t=30.0, total=16 * GB, available=8 * GB, **more):
    return MachineMemory(t=t, pid=0, window_s=5.0, total_bytes=total, available_bytes=available, **more)


def growing(pid=100, mb_a_look=100, looks=6):
    row = threads(0).threads
    return [
        Threads(t=5.0 * n, pid=pid, window_s=1.0, cpu_ratio=0.5, rss_bytes=GB + n * mb_a_look * 1_000_000, threads=row)
        for n in range(1, looks + 1)
    ]


def session_of(*records, phases=PHASES, **in_steps):
    """Eleven windows; collections in the first are of the set-up."""
    session = Session()
    session.add(header())
    session.add(process())
    for t in range(1, 12):
        session.add(steps(t, phases, first_index=10 * t, **in_steps))
    for record in records:
        session.add(record)
    return session


def found(*records, rule="memory_pressure", **in_steps):
    return {finding.rule: finding for finding in diagnose(session_of(*records, **in_steps))}.get(rule)


def test_a_machine_with_room_is_not_reported():
    assert found(machine()) is None
    assert found(machine(), *growing()) is None


def test_without_figures_of_the_machine_nothing_is_reported():
    session = session_of()
    assert "memory_pressure" in dict(unjudged(session))
    assert found() is None
    assert found(machine(total=None, available=None)) is None


def test_figures_of_long_ago_are_no_verdict():
    assert found(machine(t=1.0, available=GB // 10), steps(60, PHASES, first_index=500)) is None


@pytest.mark.parametrize(("available", "reported"), [(0.06, False), (0.04, True)])
def test_five_percent_left_is_short(available, reported):
    assert (found(machine(available=int(available * 16 * GB))) is not None) == reported


def test_who_grows_is_reported_with_when_memory_is_full():
    finding = found(machine(available=GB // 2), *growing())
    assert finding.severity == "critical"
    assert finding.headline == (
        "the machine has 0.5 GB of 16 GB of memory left: the training (100) grows by 1200 MB a minute, full in a minute"
    )
    assert "detach" in finding.action
    assert finding.evidence["full_in_s"] == pytest.approx(25)


def test_a_worker_that_grows_gets_the_advice_for_workers():
    finding = found(machine(available=GB // 2), process(201, "worker", ppid=100), *growing(201))
    assert finding.evidence["growing_pid"] == 201
    assert "worker" in finding.headline and "prefetch_factor" in finding.action


def test_a_control_groups_limit_counts_earlier_while_the_run_grows():
    near = {"limit_bytes": 4 * GB, "limit_used_bytes": int(3.6 * GB)}
    assert found(machine(**near)) is None
    finding = found(machine(**near), *growing())
    assert "the container has 0.4 GB of 4 GB" in finding.headline


def test_swapping_is_reported_and_a_little_is_not():
    finding = found(machine(swap_in_bytes_per_s=2e6, swap_out_bytes_per_s=0.0))
    assert (finding.severity, finding.headline) == ("warning", "the machine swaps 2 MB/s")
    assert found(machine(swap_in_bytes_per_s=1e5, swap_out_bytes_per_s=0.0)) is None


@pytest.mark.parametrize(("share", "severity"), [(0.005, None), (0.02, "info"), (0.06, "warning"), (0.3, "critical")])
def test_time_in_collections(share, severity):
    finding = found(rule="gc_pauses", gc_ns=int(share * 1100 * MS), gc_count=4, gc_longest_ns=20 * MS)
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.share_of_step == pytest.approx(share)
        assert finding.estimated_speedup == pytest.approx(1 / (1 - share))
        assert "gc.freeze()" in finding.action


def test_one_long_pause_is_worth_a_word_but_no_gain():
    finding = found(rule="gc_pauses", gc_ns=int(6.0 * MS), gc_count=1, gc_longest_ns=60 * MS)
    assert (finding.severity, finding.estimated_speedup) == ("info", None)
    assert "less than 1 %" in finding.headline


def test_collections_that_the_target_does_not_report_are_not_judged():
    assert found(rule="gc_pauses") is None
    assert "gc_pauses" in dict(unjudged(session_of()))
    assert "gc_pauses" not in dict(unjudged(session_of(gc_ns=0)))


PACKAGE = "/v/lib/python3.11/site-packages"
COLLECTING = frames(
    ("train.py", 50, "main", "gc.collect()", True),
    ("train.py", 48, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 9, "tuimon_backward"),
    ("train.py", 52, "main", "save(model)", True),
    ("fit.py", 31, "main", "trainer.fit(model)", True),
    (f"{PACKAGE}/fits/loop.py", 60, "fit_epoch"),
    (f"{PACKAGE}/fits/loop.py", 70, "after_batch", "gc.collect()"),
    (f"{PACKAGE}/fits/loop.py", 71, "after_batch"),
    (f"{PACKAGE}/torch/nn/modules/module.py", 99, "_call_impl"),
)
SIDE_PHASES = {"data": 1, "forward": 30, "backward": 35, "optimizer": 9, "other": 25}


def with_collections(*samples, ms=264, side=25):
    """By rule, of a loop whose collections take so much of a window of 1100 ms."""
    collections = {"gc_ns": ms * MS, "gc_count": 10, "gc_longest_ns": 24 * MS}
    phases = {**SIDE_PHASES, "other": side}
    findings = diagnose(session_of(COLLECTING, stacks(11, *samples), phases=phases, **collections))
    return {finding.rule: finding for finding in findings}


def test_collections_that_the_loop_calls_for_are_one_finding():
    by_rule = with_collections(([1, 2], 40), ([0], 30))
    assert "side_work" not in by_rule
    finding = by_rule["gc_pauses"]
    assert (finding.severity, finding.where[0].line) == ("critical", 50)
    assert finding.action == "call main() train.py:50 less often, or not at all"
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 0.24))


def test_collections_that_a_library_calls_for_are_one_finding_at_its_line():
    by_rule = with_collections(([4, 8], 30), ([4, 5, 2], 40), ([4, 6], 30), ([4, 7], 2))
    assert "side_work" not in by_rule
    finding = by_rule["gc_pauses"]
    assert [(place.file, place.line) for place in finding.where] == [("fit.py", 31)]
    assert finding.action == "call after_batch() loop.py:70, called by main() fit.py:31 less often, or not at all"


def test_other_side_work_is_reported_beside_collections_with_its_own_share():
    by_rule = with_collections(([1, 2], 40), ([0], 15), ([3], 15), ms=132)
    assert by_rule["gc_pauses"].where[0].line == 50
    side = by_rule["side_work"]
    assert side.where[0].line == 52
    assert side.share_of_step == pytest.approx(0.125)
    assert side.estimated_speedup == pytest.approx(warm(1 / (1 - 0.125)))


def test_collections_that_no_process_reports_are_side_work_at_their_line():
    session = session_of(COLLECTING, stacks(11, ([1, 2], 40), ([0], 30)), phases=SIDE_PHASES)
    by_rule = {finding.rule: finding for finding in diagnose(session)}
    assert "gc_pauses" not in by_rule
    assert by_rule["side_work"].where[0].line == 50


def test_collections_before_the_first_steps_are_of_no_step():
    session = Session()
    for record in (header(), process()):
        session.add(record)
    session.add(steps(1, PHASES, gc_ns=300 * MS, gc_count=29, gc_longest_ns=100 * MS))
    for t in range(2, 12):
        session.add(steps(t, PHASES, first_index=10 * t, gc_ns=0))
    assert "gc_pauses" not in {finding.rule for finding in diagnose(session)}
