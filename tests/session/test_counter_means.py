"""Counters and CPU time of threads over the time in which the training steps."""

from functools import partial

import pytest
from msgspec import structs

from tests.session.records import header, process, session_of, steps, thread, threads
from tuimon.records import Gpu, MachineMemory, ThreadCpu, ThreadFaults, Threads
from tuimon.session.gpus import DeviceHistory
from tuimon.session.machines import MachineTable
from tuimon.session.series import LATEST, Span
from tuimon.session.steps import SteppingSpan, StepStretch, stepping_spans
from tuimon.session.threads import ProcessThreads, core_seconds

S = 1e9


def gpu(t, util=None, **more):
    return Gpu(t=float(t), pid=0, index=0, uuid="GPU-0", name="X", util_ratio=util, **more)


def history(*records):
    found = DeviceHistory(records[0])
    for record in records:
        found.add_record(record)
    return found


def stretch(begin_s, end_s, steps, total_s, eval_s=0.0, slowed_s=0.0):
    phases = [0.0] * 6
    return StepStretch(
        begin_s, end_s, 0, steps, end_s - begin_s - slowed_s, total_s * S, *phases, eval_s * S, waited_ns=0.0
    )


def run(interval_s, *, set_up_s=15.0, steps_s=10.0, idle_s=0.0, util=0.8, samples=False):
    """Set-up without steps, then ten steps a second on a busy GPU, then nothing; a record each ``interval_s``.

    The GPU's records come 0.4 s after those of the steps.
    """
    begin_s, end_s = set_up_s, set_up_s + steps_s
    session = session_of(structs.replace(header(), interval_s=interval_s), process(100, gpu_uuids=["GPU-0"]))
    t, made = 0.0, 0
    while t < end_s + idle_s:
        t += interval_s
        count = round(10 * max(0.0, min(t, end_s) - max(t - interval_s, begin_s)))
        first = {"first_step_s": begin_s, "first_backward_s": begin_s} if count and not made else {}
        phases = {"forward": 50.0, "backward": 50.0} if count else {}
        session.add(steps(t, phases, count=count, first_index=made, window_s=interval_s, **first))
        made += count
        busy = [util if begin_s <= t + 0.4 - interval_s * (1 - (n + 0.5) / 10) < end_s else 0.0 for n in range(10)]
        buffered = {"util_samples": busy} if samples else {}
        session.add(gpu(t + 0.4, sum(busy) / 10, sm_ratio=sum(busy) / 20, energy_j=100.0 * t, **buffered))
    return session


def means(session, span="recent"):
    (row,) = session.over(span).gpus()
    return row.means


@pytest.mark.parametrize("interval_s", [1.0, 10.0])
@pytest.mark.parametrize("span", ["recent", "whole"])
def test_set_up_before_the_first_step_and_an_idle_tail_count_for_nothing(interval_s, span):
    session = run(interval_s, set_up_s=60.0, steps_s=30.0, idle_s=20.0, samples=True)
    found = means(session, span)
    assert found.util_ratio == pytest.approx(0.8, abs=0.02)
    assert found.util_at_least == pytest.approx(0.8, abs=0.03)
    assert found.util_at_most == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("samples", [False, True])
def test_a_short_run_is_judged_by_its_steps(samples):
    found = means(run(1.0, samples=samples), "whole")
    assert found.util_ratio == pytest.approx(0.8, abs=0.03)
    assert found.sm_ratio == pytest.approx(0.4, abs=0.03)


def test_before_the_first_step_the_last_half_minute_counts():
    session = run(1.0, set_up_s=60.0, steps_s=0.0)
    assert means(session).util_ratio == 0.0
    assert session.over("recent").stepping_spans() == []


def test_too_short_a_time_is_no_mean():
    assert means(run(1.0, steps_s=0.5)).util_ratio is None


def test_evaluation_within_a_figure_leaves_bounds():
    """Kernels for 0.7 of each second, of which steps take 0.9: for 0.6 to 0.7 of these 0.9."""
    readings = history(gpu(0), *(gpu(t, 0.7) for t in range(1, 11)))
    found = readings.means([SteppingSpan(0.0, 10.0, 0.9)])
    assert (found.util_at_least, found.util_at_most) == (pytest.approx(0.6 / 0.9), pytest.approx(0.7 / 0.9))
    assert found.steps_ratio == pytest.approx(0.9)


def test_what_was_not_measured_has_no_mean():
    found = history(gpu(0), *(gpu(t, 0.5) for t in range(1, 11))).means([SteppingSpan(0.0, 10.0)])
    assert (found.sm_ratio, found.watts) == (None, None)
    assert history(gpu(1, 0.5)).means([SteppingSpan(0.0, 1.0)]) is None


@pytest.mark.parametrize(
    ("used", "watts", "found"),
    [
        ([0.4] * 20 + [0.7] * 20, [300.0] * 20 + [120.0] * 20, 0.55),  # it moves
        ([0.4] * 20 + [0.7] * 20, [300.0] * 25 + [120.0] * 15, 0.46),  # it stands still from 21 s on, seen at 26 s
        ([0.7] * 40, [390.0, 400.0] * 20, 0.7),  # steady, as its power is
        ([0.4] * 20 + [1.0] * 20, [300.0] * 25 + [120.0] * 15, 0.7),  # kernels of another kind
        ([0.4] * 20 + [0.7] * 10 + [0.4] * 10, [300.0] * 25 + [120.0] * 15, 0.44),  # until it moves again
    ],
)
@pytest.mark.parametrize("counter", ["power_w", "sm_ratio"])
def test_a_utilisation_that_stands_still_while_other_counters_move_is_not_measured(used, watts, found, counter):
    rows = zip(range(1, 41), used, watts, strict=True)
    readings = history(gpu(0), *(gpu(t, u, util_samples=[u] * 3, **{counter: w / 1000}) for t, u, w in rows))
    assert readings.means([SteppingSpan(0.0, 40.0)]).util_ratio == pytest.approx(found, abs=0.005)


def test_figures_that_a_driver_repeats_are_not_measured():
    """Its counter of energy stands still, as no GPU's does: a utilisation of 100 % would hide that it idles."""
    live = [gpu(t, 0.4, energy_j=100.0 * t) for t in range(1, 21)]
    stuck = [gpu(t, 1.0, energy_j=2000.0, sm_ratio=1.0, util_samples=[1.0]) for t in range(21, 41)]
    found = history(*live, *stuck).means([SteppingSpan(0.0, 40.0)])
    assert (found.util_ratio, found.sm_ratio) == (pytest.approx(0.4), None)
    assert found.watts == pytest.approx(100.0)
    assert history(*stuck).means([SteppingSpan(30.0, 40.0)]).util_ratio is None


@pytest.mark.parametrize(
    ("windows", "begin_s", "found"),
    [
        ([stretch(t, t + 1.0, 10, 1.0) for t in range(10, 20)], 10.5, [(10.5, 20.0, 1.0)]),
        # a long step reaches back to where it began; what follows the last one is no step
        ([stretch(12.0, 13.0, 1, 1.8)], 0.0, [(pytest.approx(11.2), 13.0, 1.0)]),
        ([stretch(0, 1, 10, 1.0), stretch(1, 2, 3, 0.3)], 0.0, [(0.0, pytest.approx(1.3), 1.0)]),
        # evaluation, and what a trace held up, take their share
        ([stretch(0, 1, 5, 0.5, eval_s=0.25, slowed_s=0.25)], 0.0, [(0.0, 1.0, pytest.approx(0.5))]),
    ],
)
def test_when_steps_were_made(windows, begin_s, found):
    assert stepping_spans(windows, begin_s) == found


#: A thread as (id, CPU, wait).
Rows = list[tuple[int, float | None, float | None]]


def table_of(*windows: tuple[float, Rows]) -> ProcessThreads:
    """Of windows of a second: when each ends, and its threads; the process used as much as its first thread."""
    found = ProcessThreads(100)
    for end_s, rows in windows:
        listed = [(tid, "python", cpu, "running", wait) for tid, cpu, wait in rows]
        found.add_window(threads(end_s, *listed, cpu_ratio=rows[0][1]), 100)
    return found


def mean(table: ProcessThreads, span: Span = Span()) -> dict[int, ThreadCpu]:  # noqa: B008  (immutable)
    found = table.over(span)
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
    found = table_of(*windows).on_cores(*span)
    assert found == pytest.approx((waited, cpu, 0.0, busy))


def test_means_over_any_span() -> None:
    table = table_of(*((float(t), [(100, 0.2 if t <= 10 else 0.6, 0.1), (7, 0.5, None)]) for t in range(1, 21)))
    table.keep_apart(10.0)
    for t in range(21, 101):
        table.add_window(threads(float(t), (100, "python", 0.6, "running", 0.1), (7, "x", 0.5, "running", None)), 100)
    assert mean(table)[100].cpu_ratio == pytest.approx(0.2 * 0.1 + 0.6 * 0.9)
    assert mean(table, Span(10.0))[100].cpu_ratio == pytest.approx(0.6)
    assert (mean(table, Span(10.0))[7].cpu_ratio, mean(table)[7].delay_ratio) == (pytest.approx(0.5), None)
    assert mean(table, Span(200.0)) == {}
    assert table.training(Span(last_s=30.0)).busy_ratio == pytest.approx(0.7)


def test_memory_is_that_before_the_process_gave_it_back_at_its_exit() -> None:
    table = table_of()
    for t, rss_bytes in ((1.0, 300 << 20), (2.0, 0), (3.0, None)):
        record: Threads = threads(t, (100, "python", 0.5, "waiting"), rss_bytes=rss_bytes)
        table.add_window(record, 100)
    for found in (table.latest, table.over(Span())):
        assert found is not None and found.rss_bytes == 300 << 20


def test_threads_that_have_ended_are_dropped_and_what_was_not_measured_stays_unknown() -> None:
    table = table_of()
    assert table.over(Span()) is None
    table.add_window(threads(1, (100, "python", 1.0, "disk", None), (7, "x", 1.0, "running", 0.1)), 100)
    for t in (2, 3):
        table.add_window(threads(t, (100, "python", 1.0, "stopped", None)), 100)
    table.add_window(threads(4, (100, "python", None, "running", None)), 100)
    (only,) = mean(table).values()
    assert (only.tid, only.cpu_ratio, only.delay_ratio) == (100, 1.0, None)
    assert (table.training(Span()).disk_ratio, table.training(LATEST).disk_ratio) == (0.25, 0.0)
    assert table.training(Span()).stopped_ratio == 0.5


def test_a_thread_that_ends_as_the_run_winds_down_has_worked_beside_its_steps() -> None:
    table = table_of(*((float(t), [(100, 0.1, None), (7, 0.8, None)]) for t in range(1, 9)), (9.0, [(100, 1.0, None)]))
    assert mean(table)[7].cpu_ratio == pytest.approx(0.8 * 8 / 9)
    for t in range(10, 30):
        table.add_window(thread(float(t), 1.0), 100)
    assert list(mean(table)) == [100]


def test_page_faults_are_means_of_the_same_time() -> None:
    table = ProcessThreads(100)
    for t, hz in ((1.0, 100.0), (2.0, 400.0)):
        table.add_window(threads(t, (100, "python", 0.5, "running"), faults=[ThreadFaults(100, hz, hz / 100)]), 100)
    found = table.over(Span())
    assert found is not None and found.faults == [ThreadFaults(100, 250.0, 2.5)]
    table.add_window(thread(3.0, 0.5), 100)  # from a log without them
    found = table.over(Span())
    assert found is not None and found.faults is None


def machine(t: float, busy_cores: float | None, **more: float) -> MachineMemory:
    return MachineMemory(t=t, pid=0, window_s=5.0, busy_cores=busy_cores, **more)


class Machine(MachineTable):
    """A machine with a process of the run."""

    def __init__(self) -> None:
        self.process = ProcessThreads(100)
        super().__init__(partial(core_seconds, [self.process]))
        self.cores = self.all_cores = 2


def used(begin: int, end: int, cores: float | None, use: Machine, offset: float = 0.0) -> None:
    """The process in windows of a second."""
    for t in range(begin + 1, end + 1):
        use.process.add_window(thread(t + offset, cores), 100)


def test_the_run_is_taken_off_over_the_same_time() -> None:
    """It works for two of five seconds, and the machine's window ends between two of its own."""
    use = Machine()
    used(0, 3, 0.0, use, 0.5)
    used(3, 6, 1.5, use, 0.5)
    use.add_memory(machine(5.5, 1.6))
    found = use.cores_taken(LATEST, monitor=0.1)
    assert found is not None
    assert found.others == pytest.approx(1.6 - 1.5 * 2 / 5 - 0.1)
    assert found.idle == pytest.approx(0.4)


def test_what_ended_children_used_outside_their_windows_is_the_runs_own() -> None:
    use = Machine()
    used(0, 5, 1.0, use)
    use.process.add_window(threads(6.0, (100, "python", 1.0, "running"), ended_cpu_s=2.5), 100)
    used(6, 10, 1.0, use)
    use.add_memory(machine(5.0, 1.5))
    use.add_memory(machine(10.0, 1.5))
    found = use.cores_taken(LATEST, monitor=0.0)
    assert found is not None
    assert found.others == pytest.approx(0.0)


def test_nothing_is_known_before_both_are_measured() -> None:
    use = Machine()
    assert use.cores_taken(LATEST, 0.0) is use.cores_taken(Span(), 0.0) is None
    use.add_memory(machine(5.0, 1.0))
    assert use.cores_taken(LATEST, 0.0) is None
    used(0, 5, 1.0, use)
    use.add_memory(machine(10.0, None))
    assert use.cores_taken(LATEST, 0.0) is not None
    assert use.cores_taken(Span(5.5), 0.0) is None  # no step yet


def test_a_process_that_has_just_begun_may_have_used_a_core() -> None:
    use = Machine()
    used(0, 1, None, use)
    used(1, 5, 0.5, use)
    use.add_memory(machine(5.0, 0.6))
    found = use.cores_taken(LATEST, 0.0)
    assert found is not None and found.others == 0.0


def test_the_mean_is_of_the_time_since_the_first_step() -> None:
    """Others used a core until it, and half of one since; a process that has ended since is not forgotten."""
    use = Machine()
    use.begin_steps(8.0)
    for end, own, busy in ((5, 1.0, 2.0), (10, 1.0, 2.0), (15, 1.0, 1.5), (20, 0.2, 0.7)):
        used(end - 5, end, own, use)
        use.add_memory(machine(float(end), busy, stolen_cores=0.2, held_cores=0.1, cpu_limit_cores=3.0))
    found = use.cores_taken(Span(8.0), 0.0)
    assert found is not None
    assert found.others == pytest.approx(0.5)
    assert (found.stolen, found.held, found.limit) == (pytest.approx(0.2), pytest.approx(0.1), 3.0)
