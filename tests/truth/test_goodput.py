"""The judge of goodput, on literal figures."""

from __future__ import annotations

from tests.truth.goodput import Goodput, compared


def test_a_part_is_right_within_two_points_and_wrong_if_it_is_missing() -> None:
    truth = {"training": 50.0, "evaluation": 10.0, "set-up": 30.0, "after": 5.0, "total": 95.0}
    told = {"training": 0.515, "set-up": 0.3, "after": 0.1, "checkpoint": 0.085}
    goodput = {"seconds": 100.0, "parts": [{"name": name, "share": share} for name, share in told.items()]}
    rows = list(compared("it", truth, goodput))
    assert [row.part for row in rows if not row.is_right] == ["checkpoint", "evaluation"]
    assert not Goodput().passed(rows)
    assert Goodput().totals(rows) == ["parts right within 2 %: 3 of 5"]
