"""The Phases pane: rows, ranges, notes, and how far the CPU is ahead of the GPU."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.views.tui.running_app import texts
from tuimon.session.gpu_time import GpuTimeRow, LeadRow
from tuimon.session.phase_table import PhaseRow, PhaseTable, RangeRow
from tuimon.session.steps import StepSummary
from tuimon.views.report_types import Phase, filled
from tuimon.views.tui.drawing.lines import cells
from tuimon.views.tui.panes.phases_pane import PhasesState, lead_lines, lead_words, phases_lines

STEPS = StepSummary(1000, 14.9, 67.0, 81.0, "data", 0.01, 0)


TABLE = PhaseTable(1, 30.0, 450, False, (
    PhaseRow("data", 0.62, 41.5), PhaseRow("forward", 0.11, 7.1), PhaseRow("backward", 0.16, 10.4),
    PhaseRow("optimizer", 0.06, 3.9), PhaseRow("other", 0.05, 3.2)))  # fmt: skip


def of(table: PhaseTable, history=()) -> PhasesState:
    return PhasesState(table, STEPS, history, 1.0, (), (), phases=tuple(filled(Phase, row) for row in table.rows))


HISTORY = ((41.5, 7.1, 10.4, 3.9, 3.2, 0.0),) * 5
PICTURE = of(TABLE, HISTORY)


def test_evaluation_has_no_bar_as_its_share_is_of_the_loops_time():
    table = TABLE._replace(rows=(*TABLE.rows, PhaseRow("eval", 0.64, 14.4)))
    rows = texts(phases_lines(of(table, HISTORY), 60, 13))
    assert rows[0] == "data      ████████████████████████████████    41.5 ms   62 %"
    assert rows[5] == "eval      share of the loop's time            14.4 ms   64 %"
    assert "beside the steps; share of the loop's time" in texts(phases_lines(of(table, HISTORY), 80, 13))[5]


def test_without_a_step_the_open_phase_is_told_and_after_the_end_where_it_ended():
    loading = PICTURE._replace(table=None, steps=replace(STEPS, open_phase="forward", open_for_s=12.0))
    assert texts(phases_lines(loading, 60, 12))[:2] == ["No step has ended yet.", "Now in forward for 12s"]
    ended = loading._replace(ended=True)
    assert texts(phases_lines(ended, 60, 12))[:2] == ["No step has ended.", "It ended in forward, after 12s"]
    unsplit = PICTURE._replace(table=None, steps=replace(STEPS, open_phase="between", open_for_s=12.0))
    assert texts(phases_lines(unsplit, 60, 12))[1] == "Now in data+forward for 12s"


def test_estimates_carry_a_tilde_and_their_error():
    rows = (PhaseRow("data", 0.6, 40.0, estimated=True, error=0.05), PhaseRow("forward", 0.4, None, estimated=True))
    drawn = texts(phases_lines(of(TABLE._replace(rows=rows)), 70, 6))
    assert drawn[0].endswith("~40.0 ms  ~60 % ±5 %")
    assert drawn[1].endswith(" –  ~40 %") and drawn[1].index("%") == drawn[0].index("%")


def test_ranges_stand_under_their_phase_and_the_deepest_give_way():
    ranges = (RangeRow("batch", "batch", 0, "data", 1.0, 60.0, 0.9),
              RangeRow("batch/augment", "augment", 1, "data", 2.0, 31.0, 0.46),
              RangeRow("conv", "conv", 0, "forward", 1.0, 5.0, 0.07))  # fmt: skip
    state = of(TABLE._replace(ranges=ranges))
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


BOUNDARIES = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


def times(median_us, drained=0.0, *, idle=0.0, paced=0.0, error_us=14.0):
    low, high = (None, None) if median_us is None else (median_us / 2, median_us * 2)
    leads = tuple(LeadRow(name, 450, low, median_us, high, drained) for name in BOUNDARIES)
    return GpuTimeRow(0, 450, idle, paced, leads, error_us)


AHEAD = times(38_000.0)
BEHIND = times(50.0, 0.84, idle=0.31, paced=0.13)
UNKNOWN = times(None, 0.1, idle=0.02, paced=0.1, error_us=2300.0)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (AHEAD, "launches run 38.0 ms ahead"),
        (BEHIND, "the GPU waits for the CPU (0.05 ms ahead)"),
        (times(99.0)._replace(idle_ratio=0.2), "the GPU waits for the CPU (0.10 ms ahead)"),
        (times(5000.0, 0.6)._replace(maybe_idle_ratio=0.2), "the GPU waits for the CPU (5.0 ms ahead)"),
        (times(None, 0.9)._replace(idle_ratio=0.2), "the GPU waits for the CPU"),
        (times(30.0), "the CPU waits for the GPU (0.03 ms ahead)"),  # which is busy all the time
        (UNKNOWN, "lead not known (clocks ±2.3 ms)"),
        (times(None, error_us=None), "lead not known"),
        (AHEAD._replace(leads=()), "lead not known (clocks ±0.01 ms)"),
    ],
)
def test_the_lead_in_words(row, words):
    assert lead_words(row) == words


def test_where_backward_begins_stands_for_all():
    leads = (LeadRow("fetch end", 900, 1.0, 2.0, 3.0, 1.0), LeadRow("backward begin", 450, 1e3, 2e3, 3e3, 0.0))
    assert lead_words(AHEAD._replace(leads=leads)) == "launches run 2.0 ms ahead"
    assert lead_words(BEHIND._replace(leads=leads[:1])).startswith("the GPU waits")


@pytest.mark.parametrize("width", [36, 46, 56, 76, 106])
@pytest.mark.parametrize("most", [1, 2])
def test_it_fits(width, most):
    for row in (AHEAD, BEHIND, UNKNOWN):
        lines = lead_lines(row, None, width, most)
        assert len(lines) <= most and all(cells(line) <= width for line in lines)
