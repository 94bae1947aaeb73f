"""The garbage collector on literal sessions."""

import pytest
from msgspec import structs

from tests.diagnosis.cpu import AUGMENT, BACKWARD, HEALTHY, SIDE
from tests.session.records import by_rule, frames, loop, one_process, reason_by_rule, stacks
from tuimon.diagnosis.judging import evidence_of

MS = 1_000_000


def session_of(*records, phases=HEALTHY, **in_steps):
    """Eleven windows; collections in the first may be of the set-up, so they are not measured there."""
    return one_process(loop(11, phases, **in_steps), records)


@pytest.mark.parametrize(("share", "severity"), [(0.005, None), (0.02, "info"), (0.06, "warning"), (0.3, "critical")])
def test_time_in_collections(share, severity):
    finding = by_rule(session_of(gc_ns=int(share * 1000 * MS), gc_count=4, gc_longest_ns=20 * MS)).get("gc_pauses")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.share_of_step == pytest.approx(share)
        assert finding.estimated_speedup == pytest.approx(1 / (1 - share))
        assert "gc.freeze()" in finding.action


def test_collections_that_the_target_does_not_report_are_not_judged():
    assert "gc_pauses" not in by_rule(session_of())
    assert "gc_pauses" in reason_by_rule(session_of())
    assert "gc_pauses" not in reason_by_rule(session_of(gc_ns=0))


PACKAGE = "/v/lib/python3.11/site-packages"
COLLECTING = frames(
    ("train.py", 50, "main", "gc.collect()", True),
    ("fit.py", 31, "main", "trainer.fit(model)", True),
    (f"{PACKAGE}/fits/loop.py", 60, "fit_epoch"),
    (f"{PACKAGE}/fits/loop.py", 70, "after_batch", "gc.collect()"),
    (f"{PACKAGE}/fits/loop.py", 71, "after_batch"),
    (f"{PACKAGE}/torch/optim/adam.py", 9, "step"),
    first=12,
)


def with_collections(*samples):
    """By rule, of a loop whose collections take 24 % of the time."""
    collections = {"gc_ns": 240 * MS, "gc_count": 10, "gc_longest_ns": 24 * MS}
    return by_rule(session_of(AUGMENT, COLLECTING, stacks(11, *samples), phases=SIDE, **collections))


def test_collections_that_the_loop_calls_for_are_one_finding():
    findings = with_collections((BACKWARD, 40), ([12], 30))
    assert "side_work" not in findings
    finding = findings["gc_pauses"]
    assert (finding.severity, finding.where[0].line) == ("critical", 50)
    assert finding.action == "remove gc.collect() (train.py:50), or call it once per epoch"
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 0.25))  # side work, all of whose samples are in the call


def test_collections_that_a_library_calls_for_are_one_finding_at_its_line():
    findings = with_collections(([13, 9], 30), ([13, 14, 11], 40), ([13, 15], 30), ([13, 16], 2))
    assert "side_work" not in findings
    finding = findings["gc_pauses"]
    assert [(place.file, place.line) for place in finding.where] == [("fit.py", 31)]
    assert finding.action == "call after_batch() loop.py:70, called by main() fit.py:31 less often, or not at all"


def without_markers(collecting):
    """A library's loop with so many of about 100 samples in ``gc.collect()``."""
    seen = ([13, 14, 11], 40), ([13, 9], 30), ([13, 14, 17], 4), ([13, 15], collecting)
    return one_process(AUGMENT, COLLECTING, [stacks(t, *seen) for t in range(1, 12)], markers=False)


def test_without_markers_samples_tell_many_collections_that_the_loop_calls_for():
    session = without_markers(30)
    findings = by_rule(session)
    assert {"side_work", "gc_pauses"} & findings.keys() == {"gc_pauses"}
    assert "gc_pauses" not in reason_by_rule(session)
    finding = findings["gc_pauses"]
    assert (finding.severity, finding.where[0].line) == ("critical", 31)
    assert finding.share_of_step == pytest.approx(30 / 104)
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 30 / 104))


def test_without_markers_a_few_collections_are_not_judged():
    session = without_markers(4)
    assert "gc_pauses" not in by_rule(session)
    assert "gc_pauses" in reason_by_rule(session)


@pytest.mark.parametrize(("first_s", "share"), [(3, 0.3), (12, None)])
def test_a_first_window_with_the_set_up_counts_neither_its_time_nor_its_collections(first_s, share):
    """Of windows of many seconds it may be most of a run: then nothing is known of collections."""
    collected = {"gc_ns": 300 * MS, "gc_count": 3, "gc_longest_ns": 100 * MS}
    first, *others = loop(range(first_s, first_s + 8), HEALTHY, window_s=1.0, **collected)
    whole = one_process(structs.replace(first, window_s=float(first_s)), others).over("whole").focus
    assert evidence_of(whole).collecting == (share and pytest.approx(share))
