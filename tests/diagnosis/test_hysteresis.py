"""The primary verdict does not flicker, and its changes are kept."""

import pytest

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import Hysteresis


def finding(rule, severity="warning", share=0.3, cause=None):
    return Finding(rule=rule, severity=severity, headline=rule, cause=cause, share_of_step=share)


DATA, SIDE, CPU = finding("input_bound"), finding("side_work"), finding("compute_bound_cpu", "info")


def firsts(*moments):
    hysteresis = Hysteresis()
    shown = [hysteresis.order(found, now_s, 100 * now_s) for now_s, found in enumerate(moments)]
    return ["".join(f.rule[0] for f in found) for found in shown], hysteresis


@pytest.mark.parametrize(
    ("moments", "expected", "change"),
    [
        ([[DATA], [SIDE, DATA], [DATA], [SIDE, DATA]], "i is i is", None),  # it passes
        # one that holds takes the first place after three seconds, and one that has vanished is kept as long
        ([[DATA], *[[SIDE]] * 5], "i is is is s s", "input_bound -> side_work"),
        ([[DATA], *[[SIDE], [CPU]] * 3], "i is ic is c cs c", "input_bound -> compute_bound_cpu"),
    ],
)
def test_who_is_first_from_moment_to_moment(moments, expected, change):
    shown, hysteresis = firsts(*moments)
    assert " ".join(shown) == expected
    changes = [(each.step, f"{each.before} -> {each.after}") for each in hysteresis.changes]
    assert changes == ([(400, change)] if change else [])


def test_one_that_has_vanished_is_kept_for_three_seconds():
    shown, hysteresis = firsts([DATA], [], [], [], [], [])
    assert shown == ["i", "i", "i", "i", "", ""]
    assert hysteresis.changes[0].after is None


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
