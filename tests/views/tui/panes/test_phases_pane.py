"""The Phases pane: rows, ranges, notes, and how far the CPU is ahead of the GPU."""

from __future__ import annotations

import pytest

from tests.views.tui.running_app import texts
from tuimon.session.gpu_time import GpuTimeRow, LeadRow
from tuimon.session.phase_table import PhaseRow, PhaseTable
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


@pytest.mark.parametrize("width", [36, 46, 56, 76, 106])
@pytest.mark.parametrize("most", [1, 2])
def test_it_fits(width, most):
    for row in (AHEAD, BEHIND, UNKNOWN):
        lines = lead_lines(row, None, width, most)
        assert len(lines) <= most and all(cells(line) <= width for line in lines)
