"""The judges of goodput and of rates, on literal figures."""

from __future__ import annotations

from tests.truth.timers import Goodput, Rates


def test_a_part_is_right_within_two_points_and_wrong_if_it_is_missing() -> None:
    truth = {"training": 50.0, "evaluation": 10.0, "set-up": 30.0, "after": 5.0, "total": 95.0}
    told = {"training": 0.515, "set-up": 0.3, "after": 0.1, "checkpoint": 0.085}
    goodput = {"seconds": 100.0, "parts": [{"name": name, "share": share} for name, share in told.items()]}
    rows = list(Goodput().compared("it", truth, {"goodput": goodput}))
    assert [row.figure for row in rows if not row.is_right] == ["checkpoint", "evaluation"]
    assert not Goodput().passed(rows)
    assert Goodput().totals(rows) == ["parts right within 2 %: 3 of 5"]


def test_a_rate_is_right_within_two_percent_and_wrong_if_it_is_missing() -> None:
    truth = {"samples_per_second": 100.0, "tokens_per_second": 2000.0}
    rows = list(Rates().compared("it", truth, {"progress": {"samples_per_second": 101.9}}))
    rows += Rates().compared("it", truth, {"progress": {"samples_per_second": 97.0, "tokens_per_second": 1990.0}})
    assert [row.is_right for row in rows] == [True, False, False, True]
    assert not Rates().passed(rows)
    assert Rates().totals(rows) == ["rates right within 2 %: 2 of 4"]
    assert not Rates().passed(list(Rates().compared("it", truth, {})))
