"""Who held the cores that a run waited for, and what that cost it."""

import pytest

from tests.diagnosis.gpu import gpu
from tests.session.records import extend, loop, one_process, process, thread
from tests.views.comparison.series import FACTS, correlated, stretches
from tuimon.records import GpuProcess, MachineMemory
from tuimon.session.session import Session
from tuimon.views.comparison.compare import compare
from tuimon.views.comparison.runs import Run, run_of

_PHASES = {"data": 30.0, "forward": 30.0, "backward": 40.0}


def session(main: tuple[float, float], workers: list[tuple[float, float]], busy_cores: float | None) -> Session:
    """20 s on two cores: CPU and wait of the main thread and of each worker, and the cores that all programs use."""
    found = one_process([process(200 + n, role="worker", ppid=100, torch=None) for n in range(len(workers))])
    for t in range(1, 21):
        extend(found, [thread(t, cpu, wait, pid=pid) for pid, (cpu, wait) in enumerate(workers, 200)], thread(t, *main))
        extend(found, MachineMemory(t=float(t), pid=0, window_s=1.0, busy_cores=busy_cores), loop([t], _PHASES))
    return found


@pytest.mark.parametrize(
    ("main", "workers", "busy_cores", "starved"),
    [
        ((0.6, 0.05), [(0.6, 0.23), (0.6, 0.23)], 1.83, pytest.approx(0, abs=0.02)),  # for one another
        ((0.6, 0.05), [(0.3, 0.23), (0.3, 0.23)], 1.95, pytest.approx(0.23)),  # beside a program that takes a core
        ((0.6, 0.2), [(0.6, 0.1), (0.6, 0.1)], 1.9, pytest.approx(0.2 * 0.25)),  # others cost at most what they use
    ],
)
def test_waits_for_a_core_are_those_for_other_programs(main, workers, busy_cores, starved) -> None:
    """Two workers and the training on two cores."""
    assert run_of(session(main, workers, busy_cores), (), "run").starved == starved


def test_the_cpu_time_of_a_step_stays_where_others_slow_it_down() -> None:
    """Its step takes 100 ms of which it waits for 30; beside nobody it takes 70: the row says who is slower."""
    busy = session((0.7, 0.3), [], 1.9)
    faster = loop(20, {name: 0.7 * ms for name, ms in _PHASES.items()})
    quiet = one_process([(thread(t, 1.0, 0.0), made) for t, made in enumerate(faster, 1)])
    rows = {row.name: row for row in compare([run_of(quiet, (), "a")], [run_of(busy, (), "b")]).rows}
    cpu = rows["CPU time"]
    assert (cpu.before, cpu.after, cpu.significant) == (pytest.approx(70), pytest.approx(70), False)
    assert rows["step time"].after - rows["step time"].before == pytest.approx(30)


@pytest.mark.parametrize(("own", "taken"), [([100], 0.4), ([100, 9], 0.0)])
def test_a_gpu_is_taken_by_who_is_not_of_the_run(own: list[int], taken: float) -> None:
    found = session((0.9, 0.0), [], None)
    extend(found, [process(pid, role="other", ppid=100, torch=None) for pid in own[1:]])
    processes = [GpuProcess(100, 1 << 30, 0.5), GpuProcess(9, 1 << 30, 0.4)]
    found.add(gpu(21.0, pids=own, processes=processes))
    assert run_of(found, (), "run").gpu_taken == taken


def beside(seed: int, waited: float, slower: float = 1.0) -> Run:
    """A run that waited for so long of its time, and took as much longer."""
    rows = stretches(correlated(60, 0.3, seed, 50.0 * slower / (1 - waited)))
    return Run(name=f"run {seed}", facts=FACTS, stretches=rows, starved=waited)


def test_what_a_neighbour_cost_is_unknown_and_widens() -> None:
    """Between nothing and the square of the time that is left: no change, and a slower step, both fit."""
    for seed in range(5):
        found = compare([beside(seed, 0.0)], [beside(seed + 50, 0.2)])
        assert found.outcome == "unclear"
        assert found.speedup.low < 0.8 and found.speedup.high > 1.0
        assert "Other programs ran during AFTER" in found.notes[0] and "idle machine" in found.notes[0]
