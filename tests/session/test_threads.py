"""What threads use and wait for, over spans that are not those of their windows."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.session.records import steps, threads
from tuimon.records import ThreadCpu, Threads
from tuimon.session.processes import RunProcesses
from tuimon.session.series import Span
from tuimon.session.steps import StepStats
from tuimon.session.threads import ThreadTable

#: A thread as (id, CPU, wait).
Rows = list[tuple[int, float | None, float | None]]


def table_of(*windows: tuple[float, Rows]) -> ThreadTable:
    """Of windows of a second: when each ends, and its threads; the process used as much as its first thread."""
    found = ThreadTable(RunProcesses(), {}, str)
    for end_s, rows in windows:
        listed = [(tid, "python", cpu, "running", wait) for tid, cpu, wait in rows]
        found.add_threads(threads(end_s, *listed, cpu_ratio=rows[0][1]), 100)
    return found


def mean(table: ThreadTable, span: Span = Span()) -> dict[int, ThreadCpu]:  # noqa: B008  (immutable)
    found = table.of(100, span)
    return {row.tid: row for row in found.threads} if found is not None else {}


MAIN = [(10.7, [(100, 0.8, 0.2)]), (11.7, [(100, 0.4, 0.6)]), (12.7, [(100, 1.0, 0.0)])]
HELPER, COMPUTING = (7, 0.02, 0.2), (8, 0.5, 0.4)


@pytest.mark.parametrize(
    ("windows", "span", "waited", "cpu", "busy"),
    [
        # a window of steps has its part of each window of threads
        (MAIN, (10.0, 11.0), 0.7 * 0.2 + 0.3 * 0.6, 0.7 * 0.8 + 0.3 * 0.4, 1.0),
        (MAIN, (11.0, 12.0), 0.7 * 0.6, 0.7 * 0.4 + 0.3, 1.0),
        # it waited as long as the main thread, or one that computes
        ([(11.0, [(100, 0.1, 0.1), HELPER])], (10.0, 11.0), 0.1, 0.1, 0.2),
        ([(11.0, [(100, 0.1, 0.1), HELPER, COMPUTING])], (10.0, 11.0), 0.4, 0.1, 0.2),
        # a window without figures counts for nothing
        ([(10.7, [(100, 1.5, 0.0)]), (11.7, [(100, None, 0.0)]), (12.7, [(100, 0.5, 0.0)])], (10.2, 12.2), 0, 1, 1),
        # how busy a thread was is unknown where its wait for a core was not measured
        ([(11.0, [(100, 0.7, None)])], (10.0, 11.0), 0.0, 0.7, 0.0),
        # what is late is as the latest
        ([(11.0, [(100, 0.8, 0.2)])], (12.0, 13.0), 0.2, 0.8, 1.0),
        ([], (0.0, 1.0), 0.0, 0.0, 0.0),
    ],
)  # fmt: skip
def test_how_a_process_was_on_cores_in_a_window_of_its_steps(
    windows: list[tuple[float, Rows]], span: tuple[float, float], waited: float, cpu: float, busy: float
) -> None:
    found = table_of(*windows).on_cores(100, *span)
    assert found == pytest.approx((waited, cpu, 0.0, busy))


def test_steps_hold_how_busy_their_thread_was() -> None:
    stats = StepStats(100)
    stats.add_window(steps(2.0, {"forward": 50.0}), table_of((2.0, [(100, 0.7, 0.1)])).on_cores(100, 1.0, 2.0))
    (row,) = stats.windows()
    assert row.busy_ns == pytest.approx(0.8 * row.total_ns)


def test_means_over_any_span() -> None:
    table = table_of(*((float(t), [(100, 0.2 if t <= 10 else 0.6, 0.1), (7, 0.5, None)]) for t in range(1, 21)))
    table.begin_steps(10.0)
    for t in range(21, 101):
        table.add_threads(threads(float(t), (100, "python", 0.6, "running", 0.1), (7, "x", 0.5, "running", None)), 100)
    assert mean(table)[100].cpu_ratio == pytest.approx(0.2 * 0.1 + 0.6 * 0.9)
    assert mean(table, Span(10.0))[100].cpu_ratio == pytest.approx(0.6)
    assert (mean(table, Span(10.0))[7].cpu_ratio, mean(table)[7].delay_ratio) == (pytest.approx(0.5), None)
    assert mean(table, Span(200.0)) == {}
    assert table.training_thread(100, Span(last_s=30.0)).busy_ratio == pytest.approx(0.7)


def test_memory_is_that_before_the_process_gave_it_back_at_its_exit() -> None:
    table = table_of()
    for t, rss_bytes in ((1.0, 300 << 20), (2.0, 0), (3.0, None)):
        record: Threads = structs.replace(threads(t, (100, "python", 0.5, "waiting")), rss_bytes=rss_bytes)
        table.add_threads(record, 100)
    for found in (table.of(100), table.of(100, Span())):
        assert found is not None and found.rss_bytes == 300 << 20


def test_threads_that_have_ended_are_dropped_and_what_was_not_measured_stays_unknown() -> None:
    table = table_of()
    assert table.of(100, Span()) is None
    table.add_threads(threads(1, (100, "python", 1.0, "disk", None), (7, "x", 1.0, "running", 0.1)), 100)
    for t in (2, 3):
        table.add_threads(threads(t, (100, "python", 1.0, "stopped", None)), 100)
    table.add_threads(threads(4, (100, "python", None, "running", None)), 100)
    (only,) = mean(table).values()
    assert (only.tid, only.cpu_ratio, only.delay_ratio) == (100, 1.0, None)
    assert (table.disk_ratio(100, Span()), table.disk_ratio(100)) == (0.25, 0.0)
    assert table.training_thread(100, Span()).stopped_ratio == 0.5


def test_a_thread_that_ends_as_the_run_winds_down_has_worked_beside_its_steps() -> None:
    table = table_of(*((float(t), [(100, 0.1, None), (7, 0.8, None)]) for t in range(1, 9)), (9.0, [(100, 1.0, None)]))
    assert mean(table)[7].cpu_ratio == pytest.approx(0.8 * 8 / 9)
    for t in range(10, 30):
        table.add_threads(threads(float(t), (100, "python", 1.0, "running"), cpu_ratio=1.0), 100)
    assert list(mean(table)) == [100]


def test_threads_that_take_each_others_place_are_one() -> None:
    """One a window, as each epoch starts a new one; of two that live at a time each has its own."""
    table = table_of(*((float(t), [(100, 0.5, None), (7, 0.1, None), (1000 + t, 0.4, None)]) for t in range(1, 9)))
    assert [row.tid for row in mean(table).values()] == [100, 7, 1008]
    assert mean(table)[1008].cpu_ratio == pytest.approx(0.4)
