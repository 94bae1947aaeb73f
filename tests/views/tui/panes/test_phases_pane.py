"""The Phases pane: rows, ranges, notes."""

import pytest
from msgspec.structs import replace

from tests.views.tui.texts import texts
from tuimon.session.rows import PhaseRow, PhaseTable, RangeRow, StepSummary
from tuimon.views.tui.drawing.lines import cells
from tuimon.views.tui.panes.phases_pane import PhasesState, phases_lines

STEPS = StepSummary(1000, 14.9, 67.0, 81.0, "data", 0.01, 0)


TABLE = PhaseTable(1, 30.0, 450, False, (
    PhaseRow("data", 0.62, 41.5), PhaseRow("forward", 0.11, 7.1), PhaseRow("backward", 0.16, 10.4),
    PhaseRow("optimizer", 0.06, 3.9), PhaseRow("other", 0.05, 3.2)))  # fmt: skip


PICTURE = PhasesState(TABLE, STEPS, ((41.5, 7.1, 10.4, 3.9, 3.2, 0.0),) * 5, 1.0, (), ())


def test_evaluation_has_no_bar_as_its_share_is_of_the_loops_time():
    table = TABLE._replace(rows=(*TABLE.rows, PhaseRow("eval", 0.64, 14.4)))
    rows = texts(phases_lines(PICTURE._replace(table=table), 60, 13))
    assert rows[0] == "data      ████████████████████████████████    41.5 ms   62 %"
    assert rows[5] == "eval      share of the loop's time            14.4 ms   64 %"
    assert "beside the steps; share of the loop's time" in texts(phases_lines(PICTURE._replace(table=table), 80, 13))[5]


def test_without_a_step_the_open_phase_is_told_and_after_the_end_where_it_ended():
    loading = PICTURE._replace(table=None, steps=replace(STEPS, open_phase="forward", open_for_s=12.0))
    assert texts(phases_lines(loading, 60, 12))[:2] == ["No step has ended yet.", "Now in forward for 12s"]
    ended = loading._replace(ended=True)
    assert texts(phases_lines(ended, 60, 12))[:2] == ["No step has ended.", "It ended in forward, after 12s"]
    unsplit = PICTURE._replace(table=None, steps=replace(STEPS, open_phase="between", open_for_s=12.0))
    assert texts(phases_lines(unsplit, 60, 12))[1] == "Now in data+forward for 12s"


def test_estimates_carry_a_tilde_and_their_error():
    rows = (PhaseRow("data", 0.6, 40.0, estimated=True, error=0.05), PhaseRow("forward", 0.4, None, estimated=True))
    drawn = texts(phases_lines(PICTURE._replace(table=TABLE._replace(rows=rows), history=()), 70, 6))
    assert drawn[0].endswith("~40.0 ms  ~60 % ±5 %")
    assert drawn[1].endswith(" –  ~40 %") and drawn[1].index("%") == drawn[0].index("%")


def test_ranges_stand_under_their_phase_and_the_deepest_give_way():
    ranges = (RangeRow("batch", "batch", 0, "data", 1.0, 60.0, 0.9),
              RangeRow("batch/augment", "augment", 1, "data", 2.0, 31.0, 0.46),
              RangeRow("conv", "conv", 0, "forward", 1.0, 5.0, 0.07))  # fmt: skip
    state = PICTURE._replace(table=TABLE._replace(ranges=ranges), history=())
    names = [row.strip().split("  ")[0].split(" █")[0] for row in texts(phases_lines(state, 60, 20))]
    rest = ["forward", "└ conv", "backward", "optimizer", "other"]
    assert names[:8] == ["data", "└ batch", "└ augment ×2", *rest]
    names = [row.strip().split("  ")[0].split(" █")[0] for row in texts(phases_lines(state, 60, 8))]
    assert names[:7] == ["data", "└ batch", *rest]


@pytest.mark.parametrize("width", [20, 36, 56, 100])
@pytest.mark.parametrize("height", [1, 4, 6, 9, 20, 40])
def test_phases_fit_their_pane(width, height):
    lines = phases_lines(PICTURE._replace(notes=("a note that is quite long " * 3,)), width, height)
    assert len(lines) <= height
    assert all(cells(row) <= max(width, 29) for row in lines)
