"""What the GPU clock costs: bursts, pauses, and what is not charged."""

import pytest

from tests.agent.gpu_clock.fake_gpu import MS, SECOND, STEP, FakeGpu, FakeLoop
from tuimon.agent.gpu_clock import clock
from tuimon.agent.gpu_clock.clock import BURST_STEPS, GpuClock
from tuimon.agent.ring.layout import (
    BACKWARD_BEGIN,
    FETCH_END,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    TORCH_MEMORY,
)


def test_a_record_that_waits_for_room_in_the_queue_is_not_our_cost():
    gpu = FakeGpu()
    loop = FakeLoop(gpu)
    plain = gpu.record

    def waits(event, stream):
        gpu.now_ns += 300 * MS
        plain(event, stream)

    gpu.record = waits
    assert sum(loop.steps(400)) > 100


def test_an_idle_clock_still_reports_what_it_recorded(loop, monkeypatch):
    loop.steps(3)
    loop.gpu.behind_ns = SECOND
    loop.steps(3)
    monkeypatch.setattr(clock.TokenBucket, "is_paid", False)
    while loop.step():
        pass
    waiting = {pending.number for pending in loop.clock.events.pending}
    assert waiting
    loop.marked.clear()
    assert loop.steps(40) == [0] * 40
    assert waiting <= set(loop.times())
    assert len([m for m in loop.marked if m.kind == TORCH_MEMORY]) >= 12


class PausingLoop(FakeLoop):
    """As the hooks do it: while the clock pauses they do not call it."""

    def __init__(self, gpu, step_ns):
        super().__init__(gpu, step_ns)
        self.clock = GpuClock(gpu, self.emit, lambda: gpu.now_ns, pause=self.pause)
        self.pauses = []
        self.paused_backwards = 0

    def pause(self, backwards):
        assert backwards > 0
        self.pauses.append(backwards)
        self.paused_backwards = backwards

    def boundary(self, kind, key=0):
        self.paused_backwards -= self.paused_backwards > 0 and kind == BACKWARD_BEGIN
        if self.paused_backwards:
            self.emit(kind, key, 0)
            return 0
        return super().boundary(kind, key)


@pytest.mark.parametrize("step_ns", [MS, 10 * MS])
@pytest.mark.parametrize("boundaries", [STEP, STEP[1:], (*STEP[:3], *STEP)])
def test_a_clock_that_pauses_keeps_to_its_budget_and_resumes(step_ns, boundaries):
    gpu = FakeGpu(cost_ns=2_000)
    loop = PausingLoop(gpu, step_ns)
    begun_ns, count = gpu.now_ns, 3_000
    timed = loop.steps(count, boundaries)
    spent_ns = len(gpu.calls) * gpu.cost_ns
    seconds = (gpu.now_ns - begun_ns) / SECOND
    a_burst_ns = BURST_STEPS * 10 * 20_000
    assert spent_ns <= seconds * MS + a_burst_ns + 10_000 * seconds
    assert loop.pauses and len(loop.times()) >= BURST_STEPS
    assert timed.count(len(boundaries)) >= BURST_STEPS
    assert spent_ns >= 0.4 * seconds * MS  # it does not pause longer than it must
    reported = len([m for m in loop.marked if m.kind == TORCH_MEMORY])
    assert reported >= 2 * int(seconds)


def test_a_loop_without_backwards_has_no_pause():
    loop = PausingLoop(FakeGpu(cost_ns=2_000), MS)
    loop.steps(3_000, (FETCH_END, OPTIMIZER_BEGIN, OPTIMIZER_END))
    assert not loop.pauses
    assert len(loop.times()) > 50


def test_a_gpu_that_is_behind_is_polled_at_every_boundary(unlimited):
    """When the clock polled only where a step begins, a lead of half a step had no lower bound."""
    loop = FakeLoop(FakeGpu(behind_ns=75 * MS), step_ns=100 * MS)
    loop.steps(20)
    gaps_us = [time.gap_us for time, _ in list(loop.times().values())[10:]]
    assert None not in gaps_us
    assert max(gaps_us) < 100_000 / 2


def test_long_steps_after_short_ones_are_timed_as_well():
    """Each costs 150 us, more than a step of 80 ms pays: the one after it would never be timed."""
    bucket, paid = clock.TokenBucket(1000, 8, 0, SECOND), []
    for number in range(40):
        bucket.pass_steps(1, (80 if number % 2 else 900) * MS)
        paid.append(bucket.is_paid)
        bucket.spend(150_000)
    assert all(paid)


def test_what_costs_more_than_a_mean_step_pays_is_not_done_in_every_step():
    bucket, paid = clock.TokenBucket(1000, 8, 0, SECOND), 0
    for _ in range(1000):
        bucket.pass_steps(1, 10 * MS)
        if bucket.is_paid:
            paid += 1
            bucket.spend(100_000)
    assert paid == pytest.approx(100, abs=2)  # a tenth of them: 0.1 % of the time
