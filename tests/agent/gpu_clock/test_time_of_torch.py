"""From torch's own loop through hooks, clock and ring to the monitor's records; the GPU is a fake that idles."""

import time

import pytest

from tests.agent.gpu_clock.fake_gpu import FakeGpu
from tuimon.agent.gpu_clock import budget
from tuimon.agent.gpu_clock.clock import GpuClock
from tuimon.agent.ring.reader import RingReader
from tuimon.records import GpuTime, Steps, TorchMemory
from tuimon.sources.markers.follower import RingFollower

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class IdleGpu(FakeGpu):
    """Comes to every event at once, on the clock of this machine."""

    @property
    def now_ns(self):
        return time.monotonic_ns()

    @now_ns.setter
    def now_ns(self, _):
        pass


@pytest.fixture
def follower(hooked, monkeypatch):
    """Follows this process's ring; every step is timed."""
    monkeypatch.setattr(budget.Budget, "is_paid", True)
    monkeypatch.setattr(hooked, "clock", GpuClock(IdleGpu(), hooked.emit))
    reader = RingReader(hooked.writer().path)
    yield RingFollower(reader, 3600.0, time.monotonic_ns())
    reader.close()


def train(weight, steps):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for batch in torch.utils.data.DataLoader(torch.arange(float(steps))):
        optimizer.zero_grad()
        (weight * batch).sum().backward()
        optimizer.step()


def test_steps_of_torch_are_timed(follower):
    train(torch.nn.Parameter(torch.ones(3)), 40)
    records = list(follower.last(time.monotonic_ns()))
    (times,) = [record for record in records if isinstance(record, GpuTime)]
    assert times.steps >= 30
    assert times.given_up == 0
    assert {phase.name for phase in times.phases} == {"data", "forward", "backward", "optimizer", "other"}
    assert sum(phase.span_ns for phase in times.phases) == times.total_ns > 0
    for phase in times.phases:  # the GPU waits for the CPU at every boundary
        assert phase.idle_ns + phase.maybe_idle_ns == phase.span_ns
    assert [lead.boundary for lead in times.leads] == [
        "fetch end",
        "backward begin",
        "backward end",
        "optimizer begin",
        "optimizer end",
    ]
    assert all(lead.idle_count == lead.count >= times.steps for lead in times.leads)
    (memory,) = [record for record in records if isinstance(record, TorchMemory)]
    assert (memory.device, memory.allocated_bytes, memory.reserved_bytes) == (0, 10, 20)
    (steps,) = [record for record in records if isinstance(record, Steps)]
    assert (steps.backwards, steps.updates, steps.eval_count) == (40, 40, 0)


def test_gradients_of_gradients_and_scalers_break_no_step(follower):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for batch in torch.utils.data.DataLoader(torch.arange(30.0)):
        loss = (weight**2 * batch).sum()
        (slope,) = torch.autograd.grad(loss, weight, create_graph=True)
        scaler.scale(slope.sum() + loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    (times,) = [record for record in follower.last(time.monotonic_ns()) if isinstance(record, GpuTime)]
    assert times.steps >= 20
    assert times.given_up == 0
