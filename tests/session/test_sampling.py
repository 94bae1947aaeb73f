"""What the session says of the sampler, of the GIL, of threads that stand still, from literal records."""

import pytest

from tests.session.records import extend, frames, header, one_process, process, session_of, stacks, steps, threads
from tuimon.records import Cost, Gil, GilCount, GilFunction, Place, StackCount, Stacks
from tuimon.views.run_text import sampling_text

TORCH = "/v/lib/python3.11/site-packages/torch"
LOOP = frames(
    ("/t.py", 1, "main", "", True), (f"{TORCH}/autograd/graph.py", 9, "_engine_run_backward"), ("/t.py", 2, "f")
)


def window(t, samples=20, pid=100, window_s=1.0, **more):
    rows = [StackCount(pid, "MainThread", [0], samples)] if samples else []
    return Stacks(t=t, pid=pid, window_s=window_s, samples=samples, stacks=rows, **more)


def test_nothing_is_known_before_the_first_window():
    assert one_process().over("recent").sampling() is None


def test_the_window_being_taken_is_no_gap_but_a_sampler_that_fell_silent_is():
    session = session_of(process(), *(window(float(t)) for t in range(1, 31)))
    session.add(threads(40.0, (100, "python", 1.0, "running")))
    assert session.over("recent").sampling().coverage_ratio == pytest.approx(1.0)
    session.add(threads(90.0, (100, "python", 1.0, "running")))
    assert session.over("recent").sampling().coverage_ratio == pytest.approx(0.0)
    assert session.over("recent").sampling().rate_hz is None


def test_windows_that_overlap_the_last_minute_count_in_part():
    session = session_of(process(), window(20.0, window_s=20.0), window(120.0, window_s=20.0))
    assert session.over("recent").sampling().coverage_ratio == pytest.approx(20 / 60)


def test_the_rate_is_that_of_the_first_rank():
    windows = window(1.0, samples=5, pid=101), window(1.0, pid=100)
    session = session_of(process(101, rank=1), process(100, rank=0), windows)
    assert session.over("recent").sampling().rate_hz == pytest.approx(20.0)


def test_a_rank_without_a_window_is_not_covered():
    session = session_of(process(101, rank=1), process(100, rank=0), window(1.0))
    assert session.over("recent").sampling().coverage_ratio == pytest.approx(0.5)


def test_a_pid_that_comes_back_is_another_process():
    session = session_of(LOOP, process(), window(1.0, failed=9), process(start_unix_s=1.8e9), window(2.0))
    assert session.over("recent").sampling().failed == 0
    assert sum(sample.count for sample in session.over("recent").of(100).samples.rows) == 20


def gil(t, samples, *counts, pid=100):
    return Gil(t=t, pid=pid, samples=samples, threads=[GilCount(*count) for count in counts])


def test_who_holds_the_gil():
    rows = threads(1.0, (100, "python", 0.5, "running"), (101, "hog", 0.9, "running"), (102, "idle", 0.0, "waiting"))
    session = session_of(process(), rows, gil(1.0, 30, (100, 6), (101, 24)))
    assert [row.gil_ratio for row in session.over("recent").threads()] == [None] * 3  # thirty samples say little
    session.add(gil(6.0, 30, (101, 27)))
    assert [row.gil_ratio for row in session.over("recent").threads()] == pytest.approx([0.1, 0.85, 0.0])
    session.add(gil(70.0, 60, (101, 61)))  # the first ones are older than a minute
    assert [row.gil_ratio for row in session.over("recent").threads()] == pytest.approx([0.0, 1.0, 0.0])


def test_who_holds_the_gil_while_a_signal_has_stopped_the_process_does_not_count():
    runs, stopped = (threads(t, (100, "python", 0.5, state)) for t, state in ((1.0, "running"), (10.0, "stopped")))
    session = session_of(
        process(), runs, gil(1.0, 60, (100, 6)), stopped, [gil(t, 60, (100, 60)) for t in (11.0, 16.0)]
    )
    assert session.over("recent").threads()[0].gil_ratio == pytest.approx(0.1)
    extend(session, threads(20.0, (100, "python", 0.5, "running")), gil(21.0, 60, (100, 6)))
    assert session.over("recent").threads()[0].gil_ratio == pytest.approx(0.1)


def test_who_held_the_gil_before_the_first_step_says_nothing_of_the_steps():
    session = session_of(process(), threads(1.0, (100, "python", 0.1, "waiting")), gil(1.0, 30, (100, 30)))
    session.add(steps(2.0, {"data": 100}))
    session.add(gil(7.0, 30, (100, 1)))
    assert session.over("recent").threads()[0].gil_ratio is None  # one window is left, of thirty samples
    session.add(gil(12.0, 30, (100, 2)))
    assert session.over("recent").threads()[0].gil_ratio == pytest.approx(0.05)


def test_in_which_function_a_thread_holds_the_gil():
    place = Place("net.py", 3, "match")
    session = session_of(process(), steps(1.0, {"forward": 100}), steps(2.0, {"forward": 100}))
    assert session.gil[100].gil_share_in(0.0, 100, place) is None
    functions = [GilFunction(100, "net.py", "match", 9), GilFunction(100, "net.py", "main", 5)]
    session.add(Gil(t=3.0, pid=100, samples=36, threads=[GilCount(100, 14)], functions=functions))
    assert session.gil[100].gil_share_in(0.0, 100, place) == 0.25
    assert session.gil[100].gil_share_in(0.0, 100, Place("net.py", 3, "other")) == 0.0
    assert session.gil[100].gil_share_in(0.0, 101, place) is None
    session.add(gil(4.0, 36))
    assert session.gil[100].gil_share_in(0.0, 100, place) == 0.125


def test_pthread_ids_name_the_main_thread_only():
    rows = threads(1.0, (100, "python", 0.5, "running"), (101, "python", 0.9, "running"))
    session = session_of(process(), rows, gil(1.0, 60, (100, 15), (0x7FEF986DF6C0, 45)))
    assert [row.gil_ratio for row in session.over("recent").threads()] == [0.25, None]


def test_how_long_a_thread_has_shown_one_stack():
    def same_for_s(tid=100):
        latest = session.stacks[100].threads.stack_of(tid)
        return latest.same_for_s if latest is not None else None

    session = session_of(LOOP, process(), stacks(1.0, ([0], 15), ([0, 2], 5)))
    assert same_for_s() == 0.0
    session.add(stacks(2.0, ([0, 2], 20)))
    assert same_for_s() == pytest.approx(1.0)
    extend(session, window(3.0, samples=0, lost=True), stacks(9.0, ([0, 2], 20)))
    assert same_for_s() == pytest.approx(8.0)
    session.add(stacks(10.0, ([0], 20)))
    assert same_for_s() == pytest.approx(1.0)
    assert same_for_s(999) is None


def cycling(t, cycles, samples=40):
    rows = [StackCount(100, "MainThread", [0, 1] if cycles else [0], samples)]
    return Stacks(t=t, pid=100, window_s=8.0, samples=samples, stacks=rows, cycles=cycles)


def test_the_set_up_is_no_slow_step():
    set_up = (cycling(8.0 * n, 0) for n in range(1, 4))
    session = session_of(LOOP, process(markers=False), *set_up, cycling(32.0, 3), cycling(40.0, 4))  # one is of both
    assert session.over("recent").of(100).steps.per_second == pytest.approx(4 / (8 * 39 / 40))
    session.add(cycling(48.0, 0))  # from then on, no step in a window is a slow loop
    assert session.over("recent").of(100).steps.per_second == pytest.approx(2 / (8 * 39 / 40))


def test_steps_a_second_told_by_samples():
    attached = process(markers=False)
    session = session_of(attached, *(cycling(8.0 * n, 4) for n in range(1, 6)))
    steps = session.over("recent").of(100).steps
    assert steps.estimated
    assert steps.per_second == pytest.approx(20 / (40 * 39 / 40))
    assert (steps.median_ms, steps.total) == (None, 0)


@pytest.mark.parametrize(
    "records",
    [
        [process(markers=True), cycling(8.0, 9)],  # markers will tell
        [process(markers=False), cycling(8.0, 2)],  # too few
        [process(markers=False), cycling(8.0, 9), cycling(16.0, None)],  # samples too far apart
        [process(markers=False)],
    ],
)
def test_no_rate_where_samples_cannot_tell(records):
    assert session_of(*records).over("recent").of(100).steps is None


MAIN = (100, "pt_main_thread", 0.9, "running")


def pool(*rows, cores=8, torch="2.13.0", sampled=True, parked=()):
    first = [header(cpu_count=cores), process(torch=torch), LOOP]
    samples = [window(1.0, parked=list(parked))] if sampled else []
    return [
        (row.role, row.count)
        for row in session_of(*first, *samples, threads(1.0, MAIN, *rows)).over("recent").threads()
    ]


def idle(count, tid=101):
    return (tid, "pt_main_thread", 0.0, "waiting", 0.0, count)


BUSY = [(200 + n, "python3.11", 0.8 + 0.02 * n, "running") for n in range(3)]
UNEVEN = [(201, "python", 0.9, "running"), (202, "python", 0.03, "running")]


@pytest.mark.parametrize(
    ("rows", "facts", "others"),
    [
        # the intra-op pool is one row
        ([idle(7)], {}, [("intra-op", 7)]),
        ([idle(3)], {}, [("intra-op", 3)]),  # one a core, two hyper-threads each
        ([*BUSY, idle(4)], {}, [("intra-op", 7)]),
        (BUSY, {"cores": 64}, [("intra-op", 3)]),  # they work in step
        # threads of unknown purpose stay native, and a parked thread of Python is no pool
        ([idle(5)], {}, [("native", 5)]),
        ([idle(7)], {"torch": None}, [("native", 7)]),
        ([idle(7)], {"sampled": False}, [("native", 7)]),
        (UNEVEN, {}, [("native", 1), ("native", 1)]),
        ([idle(1)], {"cores": 2, "parked": [(101, "Thread-1")]}, [("thread", 1)]),
    ],
)
def test_threads_that_nothing_names(rows, facts, others):
    assert pool(*rows, **facts) == [("main", 1), *others]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("pt_autograd_0", "autograd"),
        ("pt_nccl_watchdg", "watchdog"),
        ("pt_nccl_heartbt", "watchdog"),
        ("NCCL-Service", "NCCL"),
        ("cuda-EvtHandlr", "CUDA driver"),
        ("gloo-worker", "gloo"),
        ("prompter", "native"),  # no "omp"
    ],
)
def test_native_threads_by_name(name, role):
    assert pool((150, name, 0.1, "waiting"))[1][0] == role


def test_over_the_whole_run():
    records = [window(float(t), failed=1, folded=2, cost_cpu_s=0.02) for t in range(1, 201) if t % 4]
    sampling = session_of(process(), *records, threads(200.0, (100, "python", 1.0, "running"))).over("whole").sampling()
    assert sampling.coverage_ratio == pytest.approx(150 / 199)
    assert (sampling.rate_hz, sampling.failed, sampling.folded) == (pytest.approx(20.0), 150, 300)
    assert sampling.cpu_ratio == pytest.approx(150 * 0.02 / 200)


def test_in_words():
    session = session_of(process(), *(window(float(t), failed=t == 3, window_s=0.97) for t in range(1, 31)))
    session.add(Cost(t=31.0, pid=0, cpu_ratio=0.04, sampler_cpu_ratio=0.021, rss_bytes=1))
    assert sampling_text(session.over("recent").sampling()) == "21 Hz · 97 % covered · 1 failed · 2.1 % cpu"
    session.add(window(32.0, samples=0, lost=True))
    assert "1 window lost" in sampling_text(session.over("recent").sampling())
