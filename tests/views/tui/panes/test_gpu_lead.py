"""The GPU's part of the Phases pane: its time beside the CPU's, its idle share, and the lead."""

import pytest

from tuimon.session.rows import GpuTimeRow, LeadRow
from tuimon.views.tui.drawing.lines import cells
from tuimon.views.tui.panes.phases_pane import lead_lines, lead_words

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
