"""A finding's fixes, of which action and gain of the finding are those of the best."""

import math

from tuimon.diagnosis.finding import Finding, FindingJson, Fix
from tuimon.interval import Interval

OTHER = Fix("make tone_map() twice as fast", 1.3, Interval(1.3, 1.3))


def finding(*fixes):
    return Finding(rule="input_bound", severity="warning", headline="", fixes=fixes)


def test_the_first_fix_is_what_the_finding_advises():
    found = finding(Fix("num_workers=0 -> 1", 2.5, Interval(1.5, 2.5)), OTHER)
    assert (found.action, found.estimated_speedup) == ("num_workers=0 -> 1", 2.5)
    assert (finding(OTHER).best.estimated_speedup, *finding(OTHER).best.gain) == (1.3, 1.3, 1.3)


def test_where_there_is_nothing_to_do_nothing_is_advised():
    assert (finding().action, finding().estimated_speedup) == ("", None)


def test_where_nothing_is_estimated_there_is_no_range_in_json():
    (fix,) = FindingJson.of(finding(Fix("num_workers=0 -> 1", gain=Interval(1.0, 1.4)))).fixes
    assert (fix.estimated_speedup, fix.low, fix.high) == (None, None, 1.4)


def test_a_gain_without_an_upper_end_has_none_in_json():
    found = finding(Fix("do it", 4.0, Interval(4.0, math.inf)))
    assert FindingJson.of(found).fixes[0].high is None
