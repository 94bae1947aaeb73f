"""How sure a claim on the time of a step must be."""

from types import SimpleNamespace

import pytest

from tuimon.diagnosis.rule import is_sure


@pytest.mark.parametrize(
    ("share", "error", "sure"), [(0.11, 0.05, False), (0.11, 0.005, True), (0.11, None, True), (0.16, 0.05, True)]
)
def test_all_of_a_shares_interval_is_above_the_threshold(share, error, sure):
    settled = SimpleNamespace(phases=SimpleNamespace(window_s=30.0))
    assert is_sure(settled, share, 0.10, error) == sure
