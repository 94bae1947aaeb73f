"""The Phases pane: rows, ranges, notes, and how far the CPU is ahead of the GPU."""

import pytest

from tests.session.records import one_process, steps
from tests.views import streams
from tests.views.tui.running_app import running, texts
from tuimon.interval import Interval
from tuimon.records import Place
from tuimon.session.gpu_time import GpuTimeRow, LeadRow
from tuimon.session.phase_table import PhaseRow, PhaseTable, RangeRow
from tuimon.session.ranks import RankRow
from tuimon.session.session import Session
from tuimon.session.stacks.samples import HotLine
from tuimon.views.report.report import parts_of
from tuimon.views.report_types import Phase, filled
from tuimon.views.tui.drawing.lines import line_width, text_of
from tuimon.views.tui.panes.step_pane import StepPane, StepState, idle_line, phases_lines, who_waits

TABLE = PhaseTable(1, 30.0, 450, (
    PhaseRow("data", 0.62, 41.5), PhaseRow("forward", 0.11, 7.1), PhaseRow("backward", 0.16, 10.4),
    PhaseRow("optimizer", 0.06, 3.9), PhaseRow("other", 0.05, 3.2)))  # fmt: skip


def of(table: PhaseTable, history=(), gpu_ms=()) -> StepState:
    spans = dict(gpu_ms)
    phases = tuple(
        filled(Phase, row, gpu_ms_per_step=spans.get(row.name), gpu_idle_ms_per_step=None) for row in table.rows
    )
    return StepState(table, None, history, 1.0, (), (), phases=phases)


HISTORY = ((41.5, 7.1, 10.4, 3.9, 3.2, 0.0),) * 5
PICTURE = of(TABLE, HISTORY)


def test_evaluation_has_no_bar_as_its_share_is_of_the_loops_time():
    table = TABLE._replace(rows=(*TABLE.rows, PhaseRow("eval", 0.64, 14.4)))
    rows = texts(phases_lines(of(table, HISTORY), 60, 13))
    assert rows[0] == "data      ████████████████████████████████    41.5 ms   62 %"
    assert rows[5] == "eval      share of the loop's time            14.4 ms   64 %"
    assert "outside the steps; share of the loop's time" in texts(phases_lines(of(table, HISTORY), 80, 13))[5]


def test_without_a_step_the_open_phase_is_told_and_after_the_end_where_it_ended():
    loading = PICTURE._replace(table=PhaseTable(1), open_phase=("forward", 12.0))
    assert texts(phases_lines(loading, 60, 12))[:2] == ["No step has ended yet.", "Now in forward for 12s"]
    ended = loading._replace(ended=True)
    assert texts(phases_lines(ended, 60, 12))[:2] == ["No step has ended.", "It ended in forward, after 12s"]
    unsplit = PICTURE._replace(table=PhaseTable(1), open_phase=("between", 12.0))
    assert texts(phases_lines(unsplit, 60, 12))[1] == "Now in data+forward for 12s"


def test_the_pane_of_a_run_before_its_first_step():
    before, pane = steps(1.0, {}, count=0, open_phase="forward", open_for_s=12.0), StepPane()
    for session, drawn in ((Session(), []), (one_process(before), ["Now in forward for 12s"])):
        state = pane.collect(parts_of(session.shown()), [])
        assert texts(phases_lines(state, 60, 12)) == ["No step has ended yet.", *drawn]
        assert len(pane.heading(state)) == 2


def test_estimates_carry_a_tilde_and_their_error():
    rows = (PhaseRow("data", 0.6, 40.0, 0.05), PhaseRow("forward", 0.4, None, 0.05))
    drawn = texts(phases_lines(of(TABLE._replace(rows=rows)), 70, 6))
    assert drawn[0].endswith("~40.0 ms  ~60 % ±5 %")
    assert drawn[1].endswith(" –  ~40 % ±5 %") and drawn[1].index("%") == drawn[0].index("%")


def test_ranges_stand_under_their_phase_and_the_deepest_give_way():
    ranges = (RangeRow("batch", "data", 1.0, 60.0, 0.9),
              RangeRow("batch/augment", "data", 2.0, 31.0, 0.46),
              RangeRow("conv", "forward", 1.0, 5.0, 0.07))  # fmt: skip
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
    assert all(line_width(row) <= max(width, 29) for row in lines)


BOUNDARIES = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


def times(median_us, drained=0.0, *, idle=(0.0, 0.0), error_us=14.0):
    low, high = (None, None) if median_us is None else (median_us / 2, median_us * 2)
    leads = tuple(LeadRow(name, 450, low, median_us, high, drained) for name in BOUNDARIES)
    return GpuTimeRow(0, 450, Interval(*idle), leads, error_us)


AHEAD = times(38_000.0)
BEHIND = times(50.0, 0.84, idle=(0.31, 0.44))
UNKNOWN = times(None, 0.1, idle=(0.02, 0.12), error_us=2300.0)


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (AHEAD, "0 % of its time: launches run 38.0 ms ahead"),
        (BEHIND, "31–44 % of its time: it waits for the CPU"),
        (times(99.0, idle=(0.2, 0.2)), "20 % of its time: it waits for the CPU"),
        (times(5000.0, 0.6, idle=(0.0, 0.2)), "0–20 % of its time: it waits for the CPU"),
        (times(None, 0.9, idle=(0.2, 0.2)), "20 % of its time: it waits for the CPU"),
        (times(30.0), "0 % of its time: the CPU waits for it"),  # which is busy all the time
        (UNKNOWN, "2–12 % of its time: clocks known to ±2.3 ms"),
        (times(None, error_us=None), "0 % of its time"),
        (AHEAD._replace(leads=()), "0 % of its time: clocks known to ±0.01 ms"),
    ],
)
def test_one_line_says_how_idle_the_gpu_is_and_who_waits(row, shown):
    assert text_of(idle_line(row, 80)).split("  ")[-1] == shown


def test_where_backward_begins_stands_for_all():
    leads = (LeadRow("fetch end", 900, 1.0, 2.0, 3.0, 1.0), LeadRow("backward begin", 450, 1e3, 2e3, 3e3, 0.0))
    assert who_waits(AHEAD._replace(leads=leads)) == "launches run 2.0 ms ahead"
    assert who_waits(BEHIND._replace(leads=leads[:1])) == "it waits for the CPU"


@pytest.mark.parametrize("width", [24, 36, 46, 56, 76, 106])
def test_it_fits(width):
    assert all(line_width(idle_line(row, width)) <= width for row in (AHEAD, BEHIND, UNKNOWN))


GPU_MS = {"data": 0.0, "forward": 6.0, "backward": 12.0, "optimizer": 2.0, "other": 0.0}


@pytest.mark.parametrize(
    ("row", "heads", "backward"),
    [
        (AHEAD, ["GPU span", "CPU"], "12.0 ms   60 %    10.4 ms"),
        (BEHIND, ["CPU", "GPU span"], "10.4 ms   16 %    12.0 ms"),
    ],
)
def test_the_clock_that_limits_the_step_comes_first(row, heads, backward):
    state = of(TABLE, HISTORY, GPU_MS)._replace(gpu=row)
    drawn = texts(phases_lines(state, 60, 13))
    assert drawn[0].index(heads[0]) < drawn[0].index(heads[1]) and drawn[3].endswith(backward)


def test_the_latest_ranks_stand_below_the_phases_and_waiting_is_hatched():
    waits = {"backward": 0.12}
    ranks = tuple(
        RankRow(rank, rank, "here", "training", 0, 9, 0, 67.0, waits=waits, excess={"data": late})
        for rank, late in ((2, 0.4), (0, 0.0))
    )
    state = PICTURE._replace(ranks=ranks, waits=waits)
    drawn = texts(phases_lines(state, 70, 14))
    assert "███░░░░░░░░ " in drawn[2] and "░" not in drawn[0]  # 12 of 16 % wait
    assert [row.split()[0] for row in drawn[6:9]] == ["rank", "2", "0"]
    assert not any("rank" in row for row in texts(phases_lines(state, 70, 6)))


@pytest.mark.parametrize(("count", "is_compared"), [(4, True), (64, False)])
async def test_many_ranks_are_compared_only_every_few_seconds(count, is_compared):
    monitor = streams.ranks(count=count, late=1, windows=8)
    async with running(monitor, size=(120, 40)) as (app, pilot):
        (before, *_) = app.board.step.state.ranks
        for rank in range(count):
            for record in streams.rank_second(9, rank, rank == 1):
                monitor.session.add(record)
        app.board.show(monitor.session, [])
        await pilot.pause()
        assert (app.board.step.state.ranks[0] is not before) is is_compared


def test_without_markers_the_hottest_lines_fill_the_pane():
    hot = tuple(HotLine(Place("train.py", line, "main"), 0.1, 10) for line in range(1, 7))
    drawn = texts(phases_lines(of(TABLE)._replace(hot=hot), 70, 13))
    assert [row.split()[2] for row in drawn[-6:]] == [f"train.py:{line}" for line in range(1, 7)]
