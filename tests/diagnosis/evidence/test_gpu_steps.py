"""Idle time of the GPU between its bounds."""

import pytest

from tests.diagnosis.gpu import (
    BACKWARD,
    FORWARD,
    FORWARD_ITEM,
    IN_BACKWARD,
    MODULE,
    PID,
    STEP,
    gpu,
    gpu_time,
    session_of,
)
from tests.session.records import steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.records import GpuProcess


def test_idle_time_that_no_event_shows_is_bounded_by_the_cpu_and_by_nvml():
    """A synchronisation in forward: launches are ahead again at its end, so that its events show nothing."""
    on_cpu = {"forward": 40, "backward": 50, "optimizer": 10}
    on_gpu = {"forward": (60, 0, 0), "backward": (30, 0, 0), "optimizer": (10, 0, 0)}
    leads = dict.fromkeys(("backward begin", "backward end", "optimizer end"), (900.0, 0.0))
    more = [record for t in range(5000, 5008) for record in (steps(t, on_cpu), gpu_time(t, on_gpu, leads))]

    def at_most(*records, **figures):
        samples = (
            ([FORWARD, MODULE, FORWARD_ITEM], 10),
            ([FORWARD, MODULE], 30),
            ([BACKWARD, IN_BACKWARD], 50),
            ([STEP], 10),
        )
        session = session_of("gpu_bound", *samples, more=[*more, *records], **figures)
        return evidence_of(session, PID).gpu_steps.idle_at_most

    strangers = [GpuProcess(PID, 1, 0.5), GpuProcess(9, 1, 0.5)]
    recent = [gpu(4990.0 + n, 0.95) for n in range(8)]
    shared = [gpu(4990.0 + n, 0.95, processes=strangers, pids=[PID, 9]) for n in range(8)]
    assert at_most() > 0.2
    assert at_most(*recent) == pytest.approx(0.08)
    assert at_most(*shared) == at_most()
