"""Which calls the GPU clock times, and within which budget."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.agent.gpu_clock.fake_gpu import MS, SECOND, STEP, FakeGpu, FakeLoop, FakeStream
from tuimon.agent import gpu_clock
from tuimon.agent.gpu_clock import BURST_STEPS, GpuClock
from tuimon.agent.ring import layout


def test_boundaries_of_a_step_are_numbered_in_order(loop):
    assert not loop.step()  # it may have begun before the clock did
    loop.marked.clear()
    loop.step()
    assert [(m.kind, m.flag) for m in loop.marked if m.kind in STEP] == [
        (kind, number) for number, kind in enumerate(STEP, next(iter(loop.boundaries())))
    ]


def test_an_event_is_recorded_after_its_marker(loop):
    loop.steps(4)
    marked = loop.boundaries()
    for number, (time, seen_ns) in loop.times().items():
        assert marked[number].time_ns <= seen_ns
        assert time.stream_idle
    begun = loop.marked[0].time_ns
    assert all(event.at_ns > begun for event in loop.gpu.made)
    calls = [name for name in loop.gpu.calls if name in ("is_idle", "record")]
    assert calls == ["is_idle", "record"] * (len(calls) // 2)
    assert loop.gpu.calls.index("is_capturing") < loop.gpu.calls.index("is_idle")


def test_a_step_is_whole_with_the_first_boundary_of_the_next():
    loop = FakeLoop(FakeGpu(cost_ns=5_000), step_ns=10 * MS)
    timed = loop.steps(40)
    first = timed.index(len(STEP))
    burst = timed[first : first + BURST_STEPS + 1]
    assert burst == [len(STEP)] * BURST_STEPS + [1]
    assert 0 in timed


def test_an_optimizer_that_was_compiled_since_is_no_longer_waited_for(loop):
    loop.steps(3)
    assert sum(loop.steps(4000, (layout.FETCH_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END)))
    known = len(loop.times())
    loop.steps(4000, (layout.FETCH_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END))
    assert len(loop.times()) > known


def test_nothing_is_touched_during_a_capture(loop, unlimited):
    loop.steps(3)
    known = len(loop.times())
    loop.gpu.in_capture = True
    loop.gpu.calls.clear()
    loop.steps(3)
    assert set(loop.gpu.calls) == {"is_capturing"}
    loop.gpu.in_capture = False
    loop.steps(3)
    assert loop.clock.on and len(loop.times()) > known


def test_another_stream_ends_the_burst(loop):
    loop.steps(3)
    loop.boundary(layout.FETCH_END)
    loop.gpu.current = FakeStream(0, 1)
    number = loop.boundary(layout.BACKWARD_BEGIN)
    assert number and not loop.boundary(layout.BACKWARD_END)
    loop.gpu.current = FakeStream(0, 0)
    loop.steps(200)
    assert number not in loop.times()
    assert loop.clock.on and len(loop.times()) > 30


@pytest.mark.parametrize(
    "method", ["stream", "is_capturing", "is_idle", "new_event", "record", "is_done", "elapsed_ms"]
)
def test_an_error_turns_it_off_for_good(loop, method):
    def fails(*_):
        raise RuntimeError("device-side assert")

    setattr(loop.gpu, method, fails)
    loop.steps(4)
    assert not loop.clock.on
    loop.gpu.calls.clear()
    assert loop.steps(4) == [0] * 4
    assert loop.gpu.calls == []


def test_events_outlive_a_clock_that_is_closed(loop):
    loop.steps(4)
    loop.clock.close()
    assert any(kept is loop.clock.events for kept in gpu_clock.abandoned)
    assert loop.steps(2) == [0, 0]
    loop.clock.record_event(5)
    assert not loop.clock.on


def test_memory_is_reported_once_a_second(loop):
    loop.steps(50)  # of 100 ms each
    memory = [(m.flag, m.value) for m in loop.marked if m.kind == layout.TORCH_MEMORY]
    assert memory[:4] == [(0, 10), (1, 20), (2, 1), (3, 0)]
    assert 4 * 4 <= len(memory) <= 4 * 6


@pytest.mark.parametrize(
    ("figures", "device", "reported"),
    [
        ((10, 20, 1, 0, 7, None, 90), 0, {0: 10, 1: 20, 2: 1, 3: 0, 4: 7, layout.MEMORY_PEAK: 90}),
        ((10, 20, 1, 0), 3, {3 << 4: 10, 3 << 4 | 1: 20, 3 << 4 | 2: 1, 3 << 4 | 3: 0}),
        (None, 0, {}),
    ],
)
def test_what_of_memory_is_known_is_reported_with_its_device(loop, figures, device, reported):
    loop.gpu.figures, loop.gpu.current = figures, FakeStream(device, 0)
    loop.steps(30)
    assert loop.clock.on and loop.times()
    assert {m.flag: m.value for m in loop.marked if m.kind == layout.TORCH_MEMORY} == reported


def test_no_device_in_use(loop):
    loop.gpu.current = None
    loop.steps(30)
    assert loop.clock.on and not loop.times()
    loop.gpu.current = FakeStream(0, 0)
    loop.steps(30)
    assert loop.times()


def elsewhere(function, *arguments):
    """What a function returns in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def test_batches_fetched_ahead_in_a_thread_do_not_make_it_the_training_thread(loop, unlimited):
    assert not elsewhere(loop.boundary, layout.FETCH_END)
    rest = STEP[1:]
    assert loop.steps(4, rest)[2:] == [len(rest)] * 2


def test_a_loop_that_goes_on_in_another_thread_is_found(loop, unlimited):
    loop.steps(3)
    loop.gpu.now_ns += gpu_clock.STALE_NS
    assert sum(elsewhere(loop.steps, 4))
    assert loop.steps(2) == [0, 0]


def test_a_backward_that_never_ended_is_forgotten(loop, unlimited):
    without_fetch = STEP[1:]
    loop.steps(3, without_fetch)
    loop.boundary(layout.BACKWARD_BEGIN)  # and the user interrupts, before its end is marked
    loop.steps(3, without_fetch)
    loop.gpu.now_ns += gpu_clock.STALE_NS
    assert loop.steps(4, without_fetch)[-1] == len(without_fetch)


def test_a_batch_begins_everything_anew(loop, unlimited):
    loop.steps(3)
    loop.boundary(layout.BACKWARD_BEGIN)  # and the user interrupts, before its end is marked
    assert loop.steps(3) == [len(STEP)] * 3


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
    monkeypatch.setattr(gpu_clock.TokenBucket, "is_paid", False)
    while loop.step():
        pass
    waiting = {pending.number for pending in loop.clock.events.pending}
    assert waiting
    loop.marked.clear()
    assert loop.steps(40) == [0] * 40
    assert waiting <= set(loop.times())
    assert len([m for m in loop.marked if m.kind == layout.TORCH_MEMORY]) >= 12


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
        self.paused_backwards -= self.paused_backwards > 0 and kind == layout.BACKWARD_BEGIN
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
    reported = len([m for m in loop.marked if m.kind == layout.TORCH_MEMORY])
    assert reported >= 2 * int(seconds)


def test_a_loop_without_backwards_has_no_pause():
    loop = PausingLoop(FakeGpu(cost_ns=2_000), MS)
    loop.steps(3_000, (layout.FETCH_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END))
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
    bucket, paid, now_ns = gpu_clock.TokenBucket(1000, 8, SECOND), [], 0
    for number in range(40):
        now_ns += (80 if number % 2 else 900) * MS
        bucket.pass_steps(number, now_ns)
        paid.append(bucket.is_paid)
        bucket.spend(150_000)
    assert all(paid)


def test_what_costs_more_than_a_mean_step_pays_is_not_done_in_every_step():
    bucket, paid = gpu_clock.TokenBucket(1000, 8, SECOND), 0
    for number in range(1000):
        bucket.pass_steps(number, number * 10 * MS)
        if bucket.is_paid:
            paid += 1
            bucket.spend(100_000)
    assert paid == pytest.approx(100, abs=2)  # a tenth of them: 0.1 % of the time
