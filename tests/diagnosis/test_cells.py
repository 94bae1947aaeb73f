"""Wall time divided once: whatever a run was recorded of, its cells add up, and so does what its GPU idles."""

from __future__ import annotations

import doctest

import pytest

from tests.verdicts import corpora
from tuimon.diagnosis import cells as module
from tuimon.diagnosis.cells import Cells, cells_of, gpu_idle_in, step_cells
from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.diagnosis.verdicts import fold

RUNS = {f"{corpus}/{run.name}": run for corpus, runs in corpora().items() for run in runs}
STEP = ("data", "forward", "backward", "optimizer", "other")


def test_the_example_holds():
    assert doctest.testmod(module) == (0, 2)


@pytest.fixture(scope="module")
def session(request):
    return fold(RUNS[request.param].records())[0]


def of_runs(*beginnings):
    return pytest.mark.parametrize("session", [name for name in RUNS if name.startswith(beginnings)], indirect=True)


@of_runs("")
def test_cells_of_a_recorded_run_add_up_to_its_wall_time_and_their_costs_to_what_its_gpu_idles(session):
    for span in ("whole", "recent"):
        evidence = evidence_of(session.over(span).focus)
        found = cells_of(evidence)
        assert found.share == pytest.approx(1.0, abs=1e-6)
        for cell in found:
            assert cell.share >= 0 and cell.interval.low - 1e-6 <= cell.share <= cell.interval.high + 1e-6
            assert cell.cost.low <= cell.cost.high
        for phases, cost, idle in idle_times(evidence, found):
            assert cost == pytest.approx(idle, abs=1e-6), phases


@of_runs("gpu_recordings/", "logs/h100_")
def test_what_the_gpu_idles_in_some_cells_leaves_the_rest_to_the_others(session):
    evidence = evidence_of(session.over("whole").focus)
    gpu = evidence.gpu.steps
    if gpu is None:
        return
    assert step_cells(evidence).share == pytest.approx(1.0, abs=1e-6)
    whole = gpu_idle_in(evidence, lambda cell: True)
    assert gpu.idle.low - 1e-6 <= whole.low <= whole.high <= gpu.idle.high + 1e-6
    for phase in STEP:
        some = gpu_idle_in(evidence, lambda cell, phase=phase: cell.phase == phase)
        others = gpu_idle_in(evidence, lambda cell, phase=phase: cell.phase != phase)
        assert some.low + others.high >= whole.low - 1e-6 and some.high + others.low <= whole.high + 1e-6


@of_runs("gpu_recordings/")
def test_recordings_have_gpu_times_that_can_be_laid_on_calls(session, request):
    evidence = evidence_of(session.over("whole").focus)
    idle = [times.high for _, _, times in idle_times(evidence, cells_of(evidence))]
    assert len(idle) == 5
    assert any(idle) == ("ddp_resnet_checkpoint" not in request.node.name)  # whose GPU is always busy


def idle_times(evidence: Evidence, found: Cells):
    """What the cells of a phase cost, and what the GPU idles in it, by phase; those that samples divide are one."""
    gpu, table, steps = evidence.gpu.steps, evidence.phases, found.where(phase=STEP)
    if gpu is None or not table:
        return
    divided = [row.name for row in table.rows if row.name == "forward" or (row.name in STEP[::4] and row.estimated)]
    for phases in (divided, *([name] for name in STEP if name not in divided)):
        yield phases, steps.where(phase=phases).cost, gpu.idle_in(*phases).times(steps.share)
