"""What samples move between phases is bounded by what markers measured."""

import pytest

from tests.session.records import steps, totals_of
from tuimon.session.phase_table import Moved, SplitShares, phase_table


@pytest.mark.parametrize(
    ("share", "data"),
    [
        (0.30, 0.31),
        (0.50, 0.41),  # samples may find a phase too often: all of it, no more
        (0.80, 0.01),  # what is most of the step is no part of a forward pass that is less than half
    ],
)
def test_more_than_a_phase_has_is_not_moved_out_of_it(share, data):
    totals = totals_of(steps(1, {"data": 1, "forward": 40, "backward": 9, "other": 50}))
    split = SplitShares({"forward": 1.0}, 0, moved=(Moved("forward", "data", share, 1000),))
    table = phase_table(100, totals, split)
    assert table is not None
    found = {row.name: row.share for row in table.rows}
    assert found["data"] == pytest.approx(data)
    assert found["data"] + found["forward"] == pytest.approx(0.41)
