"""The primary verdict does not flicker, and its changes are kept."""

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import Hysteresis


def finding(rule, severity="warning", share=0.3, cause=None):
    return Finding(rule=rule, severity=severity, headline=rule, cause=cause, share_of_step=share)


DATA, SIDE, CPU = finding("input_bound"), finding("side_work"), finding("compute_bound_cpu", "info")


def firsts(*moments):
    hysteresis = Hysteresis()
    shown = [hysteresis.order(found, now_s, 100 * now_s) for now_s, found in enumerate(moments)]
    return ["".join(f.rule[0] for f in found) for found in shown], hysteresis


def test_a_passing_finding_does_not_take_the_first_place():
    shown, hysteresis = firsts([DATA], [SIDE, DATA], [DATA], [SIDE, DATA])
    assert shown == ["i", "is", "i", "is"]
    assert not hysteresis.changes


def test_one_that_holds_takes_it_after_three_seconds():
    shown, hysteresis = firsts([DATA], [SIDE], [SIDE], [SIDE], [SIDE], [SIDE])
    assert shown == ["i", "is", "is", "is", "s", "s"]
    (change,) = hysteresis.changes
    assert change.text() == "at step 400: input_bound -> side_work"


def test_one_that_has_vanished_is_kept_for_three_seconds():
    shown, hysteresis = firsts([DATA], [], [], [], [], [])
    assert shown == ["i", "i", "i", "i", "", ""]
    assert hysteresis.changes[0].after is None


def test_one_that_has_vanished_goes_after_three_seconds_although_others_take_turns():
    shown, hysteresis = firsts([DATA], [SIDE], [CPU], [SIDE], [CPU], [SIDE], [CPU])
    assert shown == ["i", "is", "ic", "is", "c", "cs", "c"]
    (change,) = hysteresis.changes
    assert change.text() == "at step 400: input_bound -> compute_bound_cpu"


def test_what_is_clearly_worse_comes_first_at_once():
    shown, _ = firsts([CPU], [finding("hang", "critical", None)])
    assert shown == ["c", "h"]
    shown, _ = firsts([SIDE], [finding("input_bound", "critical", 0.9), SIDE])
    assert shown == ["s", "is"]
    shown, _ = firsts([SIDE], [finding("input_bound", "critical", 0.35), SIDE])
    assert shown == ["s", "si"]


def test_warm_up_ends_at_once_and_is_no_change():
    shown, hysteresis = firsts([finding("warmup", "info")], [DATA])
    assert shown == ["w", "i"]
    assert not hysteresis.changes


def test_another_cause_of_the_same_rule_must_hold_as_well():
    one, other = finding("input_bound", cause="slow_item"), finding("input_bound", cause="workers_saturated")
    hysteresis = Hysteresis()
    causes = [hysteresis.order([found], t, None)[0].cause for t, found in enumerate((one, other, one, other, one))]
    assert causes == ["slow_item"] * 5


def test_a_cause_found_later_is_shown_at_once_and_is_no_change():
    named = finding("input_bound", cause="sampler")
    hysteresis = Hysteresis()
    assert hysteresis.order([DATA], 0, None) == [DATA]
    assert hysteresis.order([named], 1, None) == [named]
    assert not hysteresis.changes
