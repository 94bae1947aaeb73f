"""Who else is on the GPU, and trainings side by side that do not hurt each other."""

import pytest

from tests.diagnosis.gpu import PID, USUAL, findings
from tests.gpu_simulator.sessions import UUID
from tests.session.records import process, steps, threads
from tuimon.records import GpuProcess

OURS = GpuProcess(PID, 1 << 30, 0.5)
SECOND = 300


@pytest.mark.parametrize(("taken", "severity"), [(0.05, None), (0.15, "warning"), (0.5, "critical")])
def test_another_program_on_the_gpu(taken, severity):
    found = findings("gpu_bound", *USUAL, util=0.99, processes=[OURS, GpuProcess(9, 1 << 30, taken)], pids=[PID, 9])
    assert ("neighbour" in found) == (severity is not None)
    if severity:
        assert found["neighbour"].severity == severity
        assert found["neighbour"].headline.startswith(f"process 9 takes {100 * taken:.0f} % of GPU 0")


@pytest.mark.parametrize("pid", [0, 71234], ids=["not translated", "of another namespace"])
def test_where_the_driver_names_no_process_of_the_run_nobody_is_a_stranger(pid):
    alone = findings("gpu_bound", *USUAL, util=0.99, processes=[OURS], pids=[PID])
    assert findings("gpu_bound", *USUAL, util=0.99, processes=[GpuProcess(pid, 1 << 30, 0.5)]) == alone


def test_a_program_that_the_driver_does_not_name_is_another_one():
    found = findings("gpu_bound", *USUAL, util=0.99, processes=[OURS, GpuProcess(0, 1 << 30, 0.5)], pids=[PID])
    assert found["neighbour"].headline.startswith("another program takes 50 % of GPU 0")


def test_a_process_whose_share_is_not_measured_is_not_judged():
    assert "neighbour" not in findings("gpu_bound", *USUAL, util=0.99, processes=[OURS, GpuProcess(9, 1 << 30, None)])


def beside_another(delay, uuid):
    """What is found where a second training runs beside the simulated one, each with its thread at 99 % CPU."""
    rows = [threads(1020, (pid, "python", 0.99, "running", delay), pid=pid) for pid in (PID, SECOND)]
    trains = [steps(1010 + n, {"forward": 50, "backward": 50}, pid=SECOND) for n in range(10)]
    more = [process(SECOND, torch="2.13.0+cu130", gpu_uuids=[uuid]), *trains, *rows]
    return findings("gpu_bound", *USUAL, util=0.99, more=more)


def test_two_trainings_at_full_cpu_with_a_core_and_a_gpu_each_are_fine():
    found = beside_another(0.0, "GPU-second")["neighbour"]
    assert found.severity == "benign"
    assert "2 training processes at 99 % CPU" in found.headline


def test_two_trainings_on_one_gpu_wait_for_each_other():
    found = beside_another(0.0, UUID)["neighbour"]
    assert found.severity == "info"
    assert found.headline == "2 trainings share GPU 0: while one computes, the others wait"


def test_two_trainings_that_wait_for_cores_are_not_called_harmless():
    assert "neighbour" not in beside_another(0.1, "GPU-second")
