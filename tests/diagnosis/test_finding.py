"""A finding's fixes, of which action and gain of the finding are those of the best."""

import math

import pytest

from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.finding_json import finding_json

OTHER = Fix("make tone_map() twice as fast", 1.3, 1.3, 1.3)


def finding(action="num_workers=0 -> 1", **more):
    return Finding(rule="input_bound", severity="warning", headline="", action=action, **more)


def test_the_first_fix_is_what_the_finding_advises():
    found = finding(estimated_speedup=2.5, speedup_at_least=1.5, other_fixes=(OTHER,))
    assert found.fixes == (Fix("num_workers=0 -> 1", 2.5, 1.5, 2.5), OTHER)
    assert finding(estimated_speedup=2.5).fixes == (Fix("num_workers=0 -> 1", 2.5, 2.5, 2.5),)


def test_where_nothing_is_estimated_there_is_no_range():
    assert finding().fixes == (Fix("num_workers=0 -> 1"),)
    assert finding(evidence={"speedup_at_most": 1.4}).fixes == (Fix("num_workers=0 -> 1", high=1.4),)
    assert finding(action="").fixes == ()


@pytest.mark.parametrize(("bound", "high"), [(1.1, 1.2), (1.4, 1.4), (28.2, 28.2)])
def test_the_upper_end_is_the_evidences_bound_however_far(bound, high):
    for found in (
        finding(estimated_speedup=1.2, evidence={"speedup_at_most": bound}),
        finding(estimated_speedup=1.2, speedup_at_most=bound),
    ):
        assert found.fixes[0][1:4] == (1.2, 1.2, high)


def test_a_gain_without_an_upper_end_has_none_in_json():
    found = finding(estimated_speedup=4.0, speedup_at_most=math.inf)
    assert finding_json(found)["fixes"][0]["high"] is None
