"""Gains of the same advice settle."""

import pytest
from msgspec.structs import replace

from tests.session.records import header
from tuimon.diagnosis import verdicts
from tuimon.diagnosis.finding import WIDEST_RANGE, Change, Finding, Fix, graded
from tuimon.diagnosis.verdicts import SettledGains
from tuimon.interval import Interval
from tuimon.records import Place

FREE, HALF = Change("items", 0.0), Change("items", 0.5)


def waiting(gain, line=12, half=1.7):
    """A wait for data with a range around its gain, and a second fix."""
    low = max(1.0, gain / 2**0.5)
    return Finding(
        rule="input_bound",
        severity="critical",
        headline="waits",
        fixes=(
            Fix(
                f"make it cheaper: a batch takes {gain} ms",  # figures in the advice may change all the time
                gain,
                Interval(low, min(2**0.5 * gain, WIDEST_RANGE * low)),
                FREE,
            ),
            Fix("make it twice as fast", half, Interval(half, half), HALF),
            Fix("ask its author"),
        ),
        where=(Place("train.py", line, "make"),),
    )


def shown(gains, settled=None, begin_s=1):
    """The primary's gain at each moment, one a second."""
    settled = settled or SettledGains()
    return [settled.settle([waiting(gain)], t)[0].estimated_speedup for t, gain in enumerate(gains, begin_s)]


def test_a_gain_that_scatters_with_its_samples_settles():
    found = [6.6, 4.2, 6.2, 5.5, 6.0, 4.4, 6.3, 4.3, 6.5, 4.2, 6.6]
    gains = shown(found)
    assert gains[0] == 6.6
    assert all(later == gains[1] for later in gains[1:])
    assert gains[-1] == pytest.approx(5.4, rel=0.1)


def test_the_severity_is_that_of_the_gain_that_is_shown():
    """What is shown surely gains 1.24x; the gain of a moment scatters about what makes a finding critical."""
    settled, found = SettledGains(), [graded(waiting(gain)) for gain in (1.75, 1.65, 1.75, 1.65)]
    assert [each.severity for each in found] == ["critical", "warning"] * 2
    moments = [settled.settle([each], t)[0] for t, each in enumerate(found, 1)]
    assert [(each.severity, each.best.least) for each in moments] == [("critical", pytest.approx(1.237, abs=0.001))] * 4


def test_the_gains_of_moments_settle(monkeypatch):
    found = iter([6.6, 4.2, 6.2])
    monkeypatch.setattr(verdicts, "diagnose", lambda _session, is_still: [waiting(next(found))])
    moments = verdicts.Verdicts()
    primaries = []
    for t in (1.0, 2.0, 3.0):
        moments.session.add(header(t=t))
        primaries.append(moments.judge()[0])
    assert primaries[1].estimated_speedup == primaries[2].estimated_speedup
    assert 4.2 < primaries[1].estimated_speedup < 6.6


def test_the_ends_of_its_range_settle_too():
    settled, ends = SettledGains(), set()
    for t, low in enumerate([1.3, 1.5, 1.4, 1.5, 1.3, 1.5, 1.4]):
        found = replace(waiting(2.0), fixes=(Fix("make it cheaper", 2.0, Interval(low, 2.0), FREE),))
        fix = settled.settle([found], t)[0].best
        ends.add(fix.gain)
    assert len(ends) <= 2


def test_what_has_clearly_changed_shows_at_once():
    assert shown([1.5] * 10 + [4.0, 4.0])[-2:] == [4.0, 4.0]


def test_what_changes_for_good_is_followed():
    assert shown([3.0] * 20 + [4.0] * 40)[-1] == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("found", [(1.5, 1.02), (1.02, 1.5), (6.6, 4.2), (4.2, 6.6)])
def test_the_ends_follow_the_gain_between_them(found):
    settled = SettledGains()
    for t, gain in enumerate(found * 5):
        fix = settled.settle([waiting(gain)], t)[0].fixes[0]
        assert 1.0 <= fix.gain.low <= fix.estimated_speedup <= fix.gain.high <= WIDEST_RANGE * fix.gain.low


def test_each_place_and_each_fix_has_its_own():
    settled = SettledGains()
    settled.settle([waiting(6.0, line=12)], 1.0)
    assert settled.settle([waiting(4.0, line=13)], 2.0)[0].estimated_speedup == 4.0
    _, other, unknown = settled.settle([waiting(4.0, line=13, half=1.75)], 3.0)[0].fixes
    assert (other.estimated_speedup, *other.gain) == pytest.approx((1.7, 1.7, 1.7))
    assert unknown == Fix("ask its author")


def test_what_is_found_anew_begins_anew():
    settled = SettledGains()
    settled.settle([waiting(6.0)], 1.0)
    settled.settle([], 2.0)
    assert settled.settle([waiting(4.0)], 3.0)[0].estimated_speedup == 4.0
