"""What samples move between phases is bounded by what markers measured."""

import pytest

from tests.session.records import steps
from tuimon.session.steps.phase_table import phase_table
from tuimon.session.steps.split_shares import Counted, Moved, SplitShares
from tuimon.session.steps.totals import Totals


@pytest.mark.parametrize(
    ("share", "data"),
    [
        (0.30, 0.31),
        (0.50, 0.41),  # samples may find a phase too often: all of it, no more
        (0.80, 0.01),  # what is most of the step is no part of a forward pass that is less than half
    ],
)
def test_more_than_a_phase_has_is_not_moved_out_of_it(share, data):
    totals = Totals()
    totals.add_window(steps(1, {"data": 1, "forward": 40, "backward": 9, "other": 50}))
    split = SplitShares({"forward": 1.0}, 0, moved=(Moved("forward", "data", share, 1000),))
    table = phase_table(100, totals, split)
    assert table is not None
    found = {row.name: row.share for row in table.rows}
    assert found["data"] == pytest.approx(data)
    assert found["data"] + found["forward"] == pytest.approx(0.41)


@pytest.mark.parametrize(
    ("share", "of_all", "other"),
    [
        (0.30, 0.50, 0.50),  # the markers show all of it as side work: before the fetch
        (0.30, 0.80, 0.80),
        (0.10, 0.80, 0.60),  # what else is missing is not known to be side work
        (0.30, 0.51, 0.50),  # within the error
    ],
)
def test_what_may_lie_in_the_forward_pass_is_moved_as_far_as_markers_lack_it(share, of_all, other):
    totals = Totals()
    totals.add_window(steps(1, {"data": 1, "forward": 40, "backward": 9, "other": 50}))
    split = SplitShares({"forward": 1.0}, 0, moved=(Moved("forward", "other", share, 1000, of_all),))
    table = phase_table(100, totals, split)
    assert table is not None
    found = {row.name: row.share for row in table.rows}
    assert found["other"] == pytest.approx(other)
    assert found["other"] + found["forward"] == pytest.approx(0.90)


def accumulated(other_ms, samples):
    """A step of two backwards, 15 ms between them; its samples may all lie there."""
    step = {"data": 5, "forward": 20, "backward": 60 - other_ms, "between": 15, "other": other_ms}
    totals = Totals()
    totals.add_window(steps(1, step))
    between = {"data": 0, **samples}
    found = sum(between.values())
    shares = {name: n / found for name, n in between.items()}
    split = SplitShares(shares, found, counted=Counted(400, between, {"forward": 80, "data": 20}))
    table = phase_table(100, totals, split)
    assert table is not None
    return {row.name: row for row in table.rows}


def test_samples_for_which_there_is_no_room_lie_where_the_markers_measure_their_phase():
    rows = accumulated(40, {"forward": 60, "other": 160})
    assert (rows["forward"].share, rows["other"].share) == pytest.approx((0.35, 0.40))
    assert rows["other"].error > 0.02  # samples do not show where they lie


def test_what_the_markers_have_of_a_phase_leaves_the_rest_between():
    rows = accumulated(20, {"forward": 20, "other": 120})
    assert (rows["forward"].share, rows["other"].share) == pytest.approx((0.20 + 0.15 / 3, 0.20 + 0.15 * 2 / 3))


def test_as_many_samples_as_there_is_room_for_divide_it():
    rows = accumulated(40, {"forward": 20, "other": 40})
    assert (rows["forward"].share, rows["other"].share) == pytest.approx((0.25, 0.50))
