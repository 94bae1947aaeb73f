"""Wall time divided once. ``tests/test_verdicts.py`` has the cells of each recorded run checked here."""

import doctest

import pytest

from tuimon.diagnosis import cells as module
from tuimon.diagnosis.cells import Cells, cells_of, gpu_idle_in, step_cells
from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.session.session import Session

STEP = ("data", "forward", "backward", "optimizer", "other")


def test_the_example_holds():
    assert doctest.testmod(module) == (0, 2)


def check_cells(run: str, session: Session) -> None:
    """Whatever a run was recorded of, its cells add up, and so does what its GPU idles."""
    for span in ("whole", "recent"):
        evidence = evidence_of(session.over(span).focus)
        found = cells_of(evidence)
        assert found.share == pytest.approx(1.0, abs=1e-6)
        for cell in found:
            assert cell.share >= 0 and cell.interval.low - 1e-6 <= cell.share <= cell.interval.high + 1e-6
            assert cell.cost.low <= cell.cost.high
        for phases, cost, idle in idle_times(evidence, found):
            assert cost == pytest.approx(idle, abs=1e-6), phases
    evidence = evidence_of(session.over("whole").focus)
    if run.startswith(("gpu_recordings/", "logs/h100_")) and evidence.gpu.steps is not None:
        check_idle_times(evidence)
    if run.startswith("gpu_recordings/"):
        idle = [times.high for _, _, times in idle_times(evidence, cells_of(evidence))]
        assert len(idle) == 5  # its GPU times can be laid on calls
        assert any(idle) == ("ddp_resnet_checkpoint" not in run)  # whose GPU is always busy


def check_idle_times(evidence: Evidence) -> None:
    """What the GPU idles in some cells leaves the rest to the others."""
    assert step_cells(evidence).share == pytest.approx(1.0, abs=1e-6)
    gpu, whole = evidence.gpu.steps, gpu_idle_in(evidence, lambda cell: True)
    assert gpu.idle.low - 1e-6 <= whole.low <= whole.high <= gpu.idle.high + 1e-6
    for phase in STEP:
        some = gpu_idle_in(evidence, lambda cell, phase=phase: cell.phase == phase)
        others = gpu_idle_in(evidence, lambda cell, phase=phase: cell.phase != phase)
        assert some.low + others.high >= whole.low - 1e-6 and some.high + others.low <= whole.high + 1e-6


def idle_times(evidence: Evidence, found: Cells):
    """What the cells of a phase cost, and what the GPU idles in it, by phase; those that samples divide are one."""
    gpu, table, steps = evidence.gpu.steps, evidence.phases, found.where(phase=STEP)
    if gpu is None or not table:
        return
    divided = [row.name for row in table.rows if row.name == "forward" or (row.name in STEP[::4] and row.estimated)]
    for phases in (divided, *([name] for name in STEP if name not in divided)):
        yield phases, steps.where(phase=phases).cost, gpu.idle_in(*phases).times(steps.share)
