"""Rules about cores on literal sessions."""

import pytest

from tests.diagnosis.cpu import workers
from tests.session.records import by_rule, frames, header, loop, native, process, session_of, stacks, thread, threads
from tuimon.diagnosis.finding import Fix
from tuimon.records import Cost, Frame, MachineMemory, Place, SettingLine

PHASES = {"forward": 40, "backward": 50, "optimizer": 10}


def run(*records, cpu_count=2, phases=PHASES, **facts):
    return by_rule(session_of(header(cpu_count=cpu_count), process(**facts), loop(12, phases), *records))


def busy(pid, number, cpu, delay):
    """A process with so many threads, each with this CPU and run-queue delay."""
    rows = [(pid + n, "python", cpu, "running", delay) for n in range(number)]
    return threads(12, *rows, pid=pid, cpu_ratio=number * cpu)


def test_threads_that_yield_while_they_wait_for_work_want_no_core():
    computing = [(100 + n, "python", 0.96, "running", 0.03) for n in range(2)]
    yielding = [(110 + n, "python", 0.02, "running", 0.70) for n in range(2)]
    found = run(threads(12, *computing, *yielding, pid=100, cpu_ratio=1.96))
    assert "cpu_oversubscribed" not in found
    assert found["compute_bound_cpu"].severity == "info"


def on_one_core(*records, run_cores="0", cpu_count=16):
    """A training with three workers, all of them busy; ``run_cores``: those that they may use."""
    memory = MachineMemory(t=12, pid=0, window_s=5.0, busy_cores=1.0, stolen_cores=0.0, run_cores=run_cores)
    return run(memory, thread(12, 0.25, 0.75), *workers(3, 0.25, delay=0.75), *records, cpu_count=cpu_count)


def test_a_run_that_is_kept_to_one_core_of_many():
    finding = on_one_core()["cpu_oversubscribed"]
    assert finding.severity == "warning" and finding.evidence["kept_to"] == "core 0 of 16"
    assert finding.headline.startswith("4 threads of 4 processes share core 0 of 16: they wait for a core ")
    assert finding.action.startswith("let it use more than core 0 of 16: os.sched_setaffinity(), taskset or a cpuset")
    assert "but have 2:" in on_one_core(run_cores=None, cpu_count=2)["cpu_oversubscribed"].headline
    assert "cpu_oversubscribed" not in on_one_core(run_cores="0-15", cpu_count=16)


def test_others_on_the_machine_are_not_blamed_on_the_run():
    found = run(thread(12, 0.6, 0.4))
    assert found["neighbour"].severity == "warning"
    assert "40 % of the time" in found["neighbour"].headline
    assert not found["neighbour"].fixes[1:]
    assert "cpu_oversubscribed" not in found


def test_beside_others_threads_that_wait_for_each_other_are_better_one():
    found = run(busy(100, 2, 0.35, 0.65))
    assert "cpu_oversubscribed" not in found
    (fix,) = found["neighbour"].fixes[1:]
    assert "torch.set_num_threads(1)" in fix.action and fix.estimated_speedup is None


def test_nothing_is_reported_of_cores_without_run_queue_delay():
    rows = [(100 + n, "python", 0.25, "running") for n in range(8)]
    assert set(run(threads(12, *rows, cpu_ratio=2.0))) == {"compute_bound_cpu"}


@pytest.mark.parametrize(("beside", "share"), [((), 0.6), (workers(1, 0.2, delay=0.8), 0.2)])
def test_threads_that_share_operations_wait_for_the_one_without_a_core(beside, share):
    rows = [(100, "python", 0.8, "running", 0.2), *((101 + n, "python", 0.25, "running", 0.5) for n in range(9))]
    found = run(threads(12, *rows, pid=100, cpu_ratio=3.0), *beside)["cpu_oversubscribed"]
    assert found.share_of_step == pytest.approx(share, abs=0.05)


BESIDE = frames(
    ("watch.py", 9, "watch", "while not stop.is_set():", True, *[""] * 2, None, None, (), True, (), True),
    ("watch.py", 20, "log", "total += price * volume", True),
    ("train.py", 48, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 9, "tuimon_backward"),
)


@pytest.mark.parametrize(
    ("line", "action"), [(0, "let it wait: queue.Queue"), (1, "let it do less at log() watch.py:20")]
)
def test_a_python_thread_that_needs_a_core_is_named_with_its_line_and_what_to_do(line, action):
    rows = [(100 + n, "python", 0.6, "running", 0.35) for n in range(2)]
    used = threads(12, *rows, (110, "readings", 0.75, "running", 0.2), pid=100, cpu_ratio=1.95)
    seen = stacks(12, ([2, 3], 40), beside=[(110, "readings", [line], 40)], window_s=2.0)
    found = run(BESIDE, used, seen, intra_op_threads=2)["cpu_oversubscribed"]
    assert found.action.startswith(action) and found.action.endswith("thread readings, which takes 75 % of a core")
    assert (found.severity, found.where[0].file, len(found.fixes)) == ("warning", "watch.py", 1)
    without = run(BESIDE, used, intra_op_threads=2)["cpu_oversubscribed"]
    assert (without.severity, without.action) == ("info", "use 3 cores")


STARVED = {"data": 60, "forward": 20, "backward": 20}


def test_too_many_workers_are_reported_with_the_data_they_bring_late():
    found = run(thread(12, 0.2, 0.2), *workers(4, 0.45, delay=0.5), phases=STARVED)
    assert "cpu_oversubscribed" not in found
    best, *_, fewer = found["input_bound"].fixes
    assert best.action.startswith("make each item cheaper")
    assert best.estimated_speedup == pytest.approx(1 / 0.4)  # what the wait for data is worth
    assert fewer == Fix("use fewer workers: 1 on 2 cores")


# -- who holds the cores


def measured(busy_cores, window_s=1.0, **more):
    """What all programs of the machine used lately."""
    return MachineMemory(t=12.0, pid=0, window_s=window_s, busy_cores=busy_cores, **more)


def a_loader_with_two_workers(main, worker):
    """The training thread and two workers as in ``demo/slow_loader.py``: (CPU, wait for a core) of each, for 5 s."""
    for pid in (201, 202):
        yield process(pid, "worker", ppid=100)
    for t in range(8, 13):
        yield thread(t, main[0], main[1])
        for pid in (201, 202):
            yield thread(t, worker[0], worker[1], pid=pid, name="pt_data_worker")


def test_own_workers_that_hold_the_cores_are_no_neighbours():
    """Nobody else runs: what the training waits for, its workers have."""
    crowd = list(a_loader_with_two_workers((0.25, 0.20), (0.82, 0.15)))
    assert "neighbour" not in run(*crowd, measured(1.93, 5.0))
    assert "neighbour" not in run(*crowd)


def test_the_gain_of_less_evaluation_follows_from_its_share_however_crowded_the_machine():
    """The simulated steps take longer than the measured ones there."""
    crowd = a_loader_with_two_workers((0.60, 0.35), (0.95, 0.05))
    found = run(*crowd, measured(2.0, 5.0), phases={"data": 10, "forward": 20, "backward": 20, "eval": 50})
    assert found["side_work"].estimated_speedup == pytest.approx(2.0)


def test_others_beside_the_workers_count_for_what_they_use():
    found = run(*a_loader_with_two_workers((0.2, 0.45), (0.4, 0.3)), measured(2.0, 5.0))["neighbour"]
    assert "other programs hold 1.0 cores" in found.headline and " 43 % of the time" in found.headline
    assert found.action == "check what else runs on the machine (top)"
    assert found.evidence["cores_taken"] == pytest.approx(1.0)


def test_workers_that_others_starve_hold_the_training_up_too():
    """Its thread waits for a core for a quarter of the time, and for data from workers that have a fifth of one."""
    starved = {"data": 80, "forward": 10, "backward": 10}
    found = run(*a_loader_with_two_workers((0.06, 0.26), (0.18, 0.72)), measured(2.0, 5.0), phases=starved)["neighbour"]
    in_data = 0.26 - 0.20  # of its own wait for a core: the rest is in the passes
    assert found.share_of_step == pytest.approx((0.26 + (0.80 - in_data) * 0.8) * 1.58 / 1.7, abs=0.02)
    assert "79 % of the time for a core" in found.headline
    alone = run(*a_loader_with_two_workers((0.30, 0.20), (0.80, 0.15)), measured(1.95, 5.0), phases=starved)
    assert "neighbour" not in alone


def test_cores_that_lie_idle_are_held_by_nobody():
    assert "neighbour" in run(thread(12, 0.6, 0.4), measured(3.5), cpu_count=4)
    assert "neighbour" not in run(thread(12, 0.6, 0.4), measured(2.5), cpu_count=4)


def test_what_the_monitor_uses_is_no_other_program():
    assert "neighbour" in run(thread(12, 0.6, 0.4), measured(1.1))
    cost = Cost(t=12.0, pid=0, cpu_ratio=0.4, sampler_cpu_ratio=0.3, rss_bytes=1 << 25)
    assert "neighbour" not in run(thread(12, 0.6, 0.4), cost, measured(1.1))


def test_the_cpu_limit_of_a_container_is_named():
    found = run(busy(100, 2, 0.5, 0.5), measured(1.0, cpu_limit_cores=1.0, held_cores=0.9), cpu_count=8)["neighbour"]
    assert "CPU limit holds 0.9 cores back" in found.headline and " 45 % of the time" in found.headline
    assert found.action == "raise the container's CPU limit, or use fewer threads"
    assert found.evidence["cpu_limit_cores"] == 1.0


def test_the_host_of_a_virtual_machine_is_named():
    found = run(thread(12, 0.6, 0.4), measured(0.9, stolen_cores=0.8))["neighbour"]
    assert found.headline.startswith("the host of this virtual machine gives 0.8 cores to others: ")


def test_beside_others_greedy_threads_are_still_too_many():
    """Of what eight threads wait, a neighbour on one core explains little."""
    found = run(busy(100, 8, 0.15, 0.85), measured(2.0))
    assert "neighbour" not in found
    assert "torch.set_num_threads(2)" in found["cpu_oversubscribed"].action


def test_threads_that_are_too_many_and_others_that_take_a_core_are_both_reported_each_with_its_waits():
    """Of 1.8 cores that three threads wait for, others use 0.8."""
    found = run(busy(100, 3, 0.4, 0.6), measured(2.0))
    assert found["neighbour"].share_of_step == pytest.approx(0.6 * 0.8 / 1.8)
    assert found["cpu_oversubscribed"].share_of_step == pytest.approx(0.6 * 1.0 / 1.8)


# -- where the number comes from


def setting(*counts, file="/home/me/train.py", first=0):
    """A frame of a file that sets these numbers."""
    return frames(Frame(file, 40, "main", "step()", user=True, counts=counts), t=1.0, first=first)


def test_the_environment_that_sets_the_threads_is_named():
    found = run(busy(100, 8, 0.25, 0.75), intra_op_threads=8, omp_num_threads=8)["cpu_oversubscribed"]
    assert found.action.endswith("or set OMP_NUM_THREADS=2 (the training was started with 8)")
    found = run(busy(100, 8, 0.25, 0.75), intra_op_threads=8, omp_num_threads=2)["cpu_oversubscribed"]
    assert found.action.endswith("or set OMP_NUM_THREADS=2")


@pytest.mark.parametrize(
    ("source", "is_named"),
    [
        ("torch.set_num_threads(1)", False),  # in each worker
        ("torch.set_num_threads(8)", True),
        ("torch.set_num_threads(args.threads)", True),
        ('os.environ["OMP_NUM_THREADS"] = "1"', False),
        ('os.environ["OMP_NUM_THREADS"] = "8"', True),
        ('os.environ.setdefault("MKL_NUM_THREADS", "4")', False),
        ('os.environ["OMP_NUM_THREADS"] = str(threads)', True),
    ],
)
def test_the_line_that_sets_the_threads_is_the_place_unless_it_sets_another_number(source, is_named):
    line = SettingLine("threads", 5, "begin", source)
    found = run(setting(line), busy(100, 8, 0.25, 0.75), intra_op_threads=8)["cpu_oversubscribed"]
    assert "torch.set_num_threads(2)" in found.action
    assert found.where == ((Place("/home/me/train.py", 5, "begin", source),) if is_named else ())


@pytest.mark.parametrize(
    ("threads", "cores", "used", "calls", "workers_cpu", "number", "which"),
    [
        (1, 2, 1.0, 3, 0.0, 2, "on cores that nobody uses"),
        (1, 8, 1.0, 3, 0.0, 8, "on cores that nobody uses"),
        (1, 8, 5.0, 3, 0.0, 4, "on cores that nobody uses"),  # other programs have four
        (1, 2, 2.0, 3, 0.0, 2, "once other programs leave them cores"),
        (1, 2, 2.0, 3, 0.9, None, None),  # its own worker has one
        (1, 2, 2.0, 3, 2.4, None, None),  # its worker wants more than there are
        (1, 2, 1.0, 15, 0.0, None, None),  # small operations
        (2, 2, 1.0, 3, 0.0, None, None),
    ],
)
def test_large_operations_on_one_thread_beside_idle_cores(threads, cores, used, calls, workers_cpu, number, which):
    variable = SettingLine("threads", 2, "main", 'os.environ["OMP_NUM_THREADS"] = "1"')
    line = SettingLine("threads", 3, "main", "torch.set_num_threads(1)")
    code = native(12, (100, ("interpreter", "forward", calls), ("torch", "forward", 100 - calls)))
    lines = frames(Frame("train.py", 9, "main", "loss = model(x)", True, counts=(variable, line)))
    beside = workers(1, workers_cpu) if workers_cpu else ()
    records = (thread(12, 0.99, 0.01), measured(used, 12.0), lines, code, *beside)
    found = run(*records, cpu_count=cores, intra_op_threads=threads)["compute_bound_cpu"]
    assert found.severity == "info" and ("all on one thread" in found.headline) is (number is not None)
    if number is not None:
        how = "torch.set_num_threads(2) or OMP_NUM_THREADS=2" if number == 2 else f"then more, up to {number}"
        assert how in found.action and which in found.action
        assert found.where[0].line == 3
        assert found.estimated_speedup is None and tuple(found.fixes[0].gain) == pytest.approx((1, number), rel=0.1)


def test_the_default_of_a_launcher_is_named():
    records = (thread(12, 0.99, 0.01), native(12, (100, ("torch", "forward", 100))))
    found = run(*records, cpu_count=8, intra_op_threads=1, omp_num_threads=1)["compute_bound_cpu"]
    assert "the training was started with OMP_NUM_THREADS=1" in found.action and "torchrun" in found.action
