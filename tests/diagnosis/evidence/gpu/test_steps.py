"""Idle time of the GPU between its bounds."""

import pytest

from tests.diagnosis.gpu import BACKWARD, FORWARD, IN_BACKWARD, LINES, MODULE, PID, STEP, gpu, gpu_time
from tests.session.records import extend, header, process, session_of, stacks, steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.records import GpuProcess

#: Steps of 100 ms: the GPU comes late to forward, and may be idle for 50 ms of it, for 10 ms of backward.
ON_CPU = {"forward": 50, "backward": 40, "optimizer": 10}
ON_GPU = {"forward": (60, 0, 50), "backward": (30, 0, 10), "optimizer": (10, 0, 0)}
LEADS = dict.fromkeys(("backward begin", "backward end", "optimizer end"), (900.0, 0.0))
LAUNCHES = (([FORWARD, MODULE], 50), ([BACKWARD, IN_BACKWARD], 40), ([STEP], 10))
NO_COPIES = {"pcie_rx_bytes_per_s": 1.0, "pcie_tx_bytes_per_s": 1.0}


def judged(*more, util=None, on_gpu=ON_GPU, world_size=None, **figures):
    """GpuSteps of ten windows of a second."""
    session = session_of(header(pid=PID), process(PID, torch="2.13.0+cu130", world_size=world_size), LINES)
    for t in range(1, 11):
        extend(session, steps(t, ON_CPU), gpu_time(t, on_gpu, LEADS), stacks(t, *LAUNCHES))
        extend(session, [] if util is None else gpu(t, util, pids=[PID], **figures))
    return evidence_of(extend(session, more).over("recent").of(PID)).gpu.steps


def bounds(found, *phases):
    told = found.idle_in(*phases) if phases else found.idle
    return tuple(round(100 * share) for share in told)


def test_who_else_uses_the_gpu_may_hide_its_idle_time():
    strangers = [GpuProcess(PID, 1, 0.5), GpuProcess(9, 1, 0.5)]
    assert bounds(judged(util=0.95)) == (0, 6)
    assert bounds(judged(util=0.95, processes=strangers)) == (0, 56)
    unmeasured = [GpuProcess(PID, 1), GpuProcess(9, 1)]
    assert bounds(judged(util=0.95, processes=unmeasured)) == (0, 60)
    assert bounds(judged(util=0.95, processes=[GpuProcess(PID, 1, 0.9), GpuProcess(9, 1)])) == (0, 6)  # it idles
    ranks = [process(pid, torch="2.13.0+cu130", world_size=8) for pid in (PID, 9)]
    assert bounds(judged(*ranks, util=0.95, processes=strangers, world_size=8)) == (0, 56)
    assert bounds(judged(util=0.95, world_size=8)) == (0, 6)


def test_an_exchange_may_hide_that_nothing_else_was_launched():
    waits = {"data": (40, 40, 0), "forward": (20, 10, 10), "backward": (30, 0, 0), "optimizer": (10, 0, 0)}
    found = judged(on_gpu=waits, util=0.75, world_size=8)
    assert found.contradiction is None
    assert bounds(found) == (16, 26)
    assert bounds(found, "data") == (16, 26)


@pytest.mark.parametrize("util", [0.1, 0.32])
def test_contradictions_are_kept_and_lower_the_certainty(util):
    busy = {"forward": (60, 0, 0), "backward": (30, 0, 0), "optimizer": (10, 0, 0)}
    found = judged(on_gpu=busy, util=util, **NO_COPIES)
    by_events, by_counters = found.contradiction
    assert by_events == (0, 0)
    assert by_counters.low == pytest.approx(0.96 - util)
    assert found.idle.low == 0
    assert found.idle.high >= 0.64
    assert not found.is_bottleneck
    assert judged(on_gpu=busy, util=0.98).contradiction is None


def test_idle_time_that_is_certain_and_a_gpu_that_is_always_used():
    waits = {"data": (40, 40, 0), "forward": (20, 0, 0), "backward": (30, 0, 0), "optimizer": (10, 0, 0)}
    found = judged(on_gpu=waits, util=1.0)
    assert found.contradiction is None
    assert (bounds(found), bounds(found, "data")) == ((0, 1), (0, 1))  # work that the stream's events do not time
    assert found.untimed == pytest.approx(0.39)
