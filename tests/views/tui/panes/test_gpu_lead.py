"""The GPU's part of the Phases pane: its time beside the CPU's, its idle share, and the lead."""

from pathlib import Path

import pytest

from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.reading import fold
from tuimon.session.rows import GpuTimeRow, LeadRow, PhaseRow
from tuimon.sources.log.reader import read_log
from tuimon.views.format import percent_range
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.panes.gpu_lead import lead_lines, lead_words
from tuimon.views.tui.panes.phase_rows import columns_of, phase_line
from tuimon.views.tui.panes.phases_pane import PhasesPane, phases_lines

LOGS = Path(__file__).parents[3] / "data" / "logs"
BOUNDARIES = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


def times(median_us, drained=0.0, *, idle=0.0, paced=0.0, error_us=14.0):
    low, high = (None, None) if median_us is None else (median_us / 2, median_us * 2)
    leads = tuple(LeadRow(name, 450, low, median_us, high, drained) for name in BOUNDARIES)
    return GpuTimeRow(0, 450, idle, paced, leads, error_us)


AHEAD = times(38_000.0)
BEHIND = times(50.0, 0.84, idle=0.31, paced=0.13)
UNKNOWN = times(None, 0.1, idle=0.02, paced=0.1, error_us=2300.0)


def drawn(lines):
    return [text_of(row).rstrip() for row in lines]


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


def test_one_line_with_a_gauge_of_the_lead_against_the_step():
    assert drawn(lead_lines(AHEAD, 76.0, 76, 1)) == [
        f"lead      {'━' * 12}{'─' * 11}  launches run 38.0 ms ahead · GPU idle 0 %"
    ]
    assert drawn(lead_lines(BEHIND, 76.0, 76, 1)) == [
        "lead      ━───────  the GPU waits for the CPU (0.05 ms ahead) · idle 31–44 %"
    ]


@pytest.mark.parametrize("width", [36, 46, 56, 76, 106])
@pytest.mark.parametrize("most", [1, 2])
def test_it_fits(width, most):
    for row in (AHEAD, BEHIND, UNKNOWN):
        lines = lead_lines(row, None, width, most)
        assert len(lines) <= most and all(cells(line) <= width for line in lines)


PHASE = PhaseRow("data", 0.62, 41.5, gpu_ms_per_step=40.0, gpu_idle_ms_per_step=10.0, gpu_maybe_idle_ms_per_step=6.0)


def test_the_span_on_the_gpus_clock_and_its_idle_time_stand_beside_the_cpus_time():
    assert text_of(phase_line(PHASE, columns_of(56, gpu=True))).endswith("41.5 ms   62 %    40.0 ms")
    assert text_of(phase_line(PHASE, columns_of(76, gpu=True))).endswith("41.5 ms   62 %    40.0 ms   10.0–16.0 ms")
    assert columns_of(46, gpu=True) == columns_of(46)
    unbounded = PHASE._replace(gpu_idle_ms_per_step=0.0, gpu_maybe_idle_ms_per_step=40.0)
    assert text_of(phase_line(unbounded, columns_of(76, gpu=True))).endswith("62 %    40.0 ms        unknown")
    estimated = PHASE._replace(estimated=True, error=0.05)
    assert "±" not in text_of(phase_line(estimated, columns_of(56, gpu=True, error=True)))
    assert "±5 %" in text_of(phase_line(estimated, columns_of(76, gpu=True, error=True)))


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [(0.31, 0.44, "31–44 %"), (0.3, 0.3, "30 %"), (0.0, 0.004, "<1 %"), (0.9, 1.2, "90–100 %")],
)
def test_what_is_known_within_bounds(least, most, text):
    assert percent_range(least, most) == text


@pytest.mark.parametrize("log", ["small_kernels", "queue_full", "item__every_step", "starved_by_its_loader"])
def test_the_gpu_idles_as_long_as_the_verdict_says(log):
    """By events alone, launches that set the pace leave 8 to 100 % of the step open; NVML's counters know better."""
    session, _ = fold(read_log(str(LOGS / f"{log}.jsonl.gz")))
    state = PhasesPane().collect(session, [])
    known = evidence_of(session.over("recent"), state.table.pid).gpu_steps
    (line,) = [line for line in drawn(phases_lines(state, 76, 20)) if line.startswith("GPU idle")]
    assert line.endswith(f"{percent_range(known.idle, known.idle_at_most)} of its time")
    assert known.idle_at_most - known.idle < 0.1
