"""The judge of rates, on literal figures."""

from __future__ import annotations

from tests.truth.rates import Rates, compared


def test_a_rate_is_right_within_two_percent_and_wrong_if_it_is_missing() -> None:
    truth = {"samples_per_second": 100.0, "tokens_per_second": 2000.0}
    rows = list(compared("it", truth, {"progress": {"samples_per_second": 101.9}}))
    rows += compared("it", truth, {"progress": {"samples_per_second": 97.0, "tokens_per_second": 1990.0}})
    assert [row.is_right for row in rows] == [True, False, False, True]
    assert not Rates().passed(rows)
    assert Rates().totals(rows) == ["rates right within 2 %: 2 of 4"]
    assert not Rates().passed(list(compared("it", truth, {})))
