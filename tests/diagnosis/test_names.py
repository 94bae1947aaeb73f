"""The rules there are, by name."""

import pytest

from tuimon.diagnosis import RULES
from tuimon.diagnosis.names import RULE_NAMES
from tuimon.diagnosis.rules.start import warmup


def test_every_name_has_its_rule_and_every_rule_its_name():
    assert {rule.__name__ for rule in (*RULES, warmup)} == RULE_NAMES
    assert len(RULES) + 1 == len(RULE_NAMES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_says_what_it_rests_on(rule):
    assert "Evidence: " in rule.__doc__
