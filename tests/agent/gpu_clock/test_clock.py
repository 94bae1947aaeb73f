"""The GPU clock: what it times, what it reports, what it costs, and when it touches nothing."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from tests.agent.gpu_clock.fake_gpu import TURN, FakeGpu, FakeLoop, FakeStream
from tuimon.agent.gpu_clock import budget, clock, turns
from tuimon.agent.gpu_clock import events as gpu_events
from tuimon.agent.gpu_clock.clock import BURST_STEPS, GpuClock
from tuimon.agent.ring.layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    FETCH_END,
    FIRST_EVENT,
    GPU_ANCHOR,
    GPU_TIME,
    LAST_EVENT,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    TORCH_MEMORY,
)

MS = 1_000_000
SECOND = 1000 * MS


@pytest.fixture
def loop():
    return FakeLoop(FakeGpu())


@pytest.fixture
def unlimited(monkeypatch):
    """Every turn is timed."""
    monkeypatch.setattr(budget.Budget, "is_paid", True)


def test_boundaries_of_a_turn_are_numbered_in_order(loop):
    assert not loop.turn()  # it may have begun before the clock did
    loop.marked.clear()
    loop.turn()
    assert [(m.kind, m.flag) for m in loop.marked if m.kind in TURN] == [
        (kind, number) for number, kind in enumerate(TURN, next(iter(loop.boundaries())))
    ]


def test_an_event_is_recorded_after_its_marker(loop):
    loop.turns(4)
    marked = loop.boundaries()
    for number, (time, seen_ns) in loop.times().items():
        assert marked[number].time_ns <= seen_ns
        assert time.stream_idle
    begun = loop.marked[0].time_ns
    assert all(event.at_ns > begun for event in loop.gpu.made)
    calls = [name for name in loop.gpu.calls if name in ("is_idle", "record")]
    assert calls == ["is_idle", "record"] * (len(calls) // 2)
    assert loop.gpu.calls.index("is_capturing") < loop.gpu.calls.index("is_idle")


def test_times_are_the_gpus(loop, unlimited):
    loop.turns(12)
    times, marked = loop.times(), loop.boundaries()
    numbers = sorted(times)
    for before, after in pairwise(numbers):
        on_gpu = times[after][0].elapsed_ns - times[before][0].elapsed_ns
        assert on_gpu == pytest.approx(marked[after].time_ns - marked[before].time_ns, abs=200)


def test_a_turn_is_whole_with_the_first_boundary_of_the_next():
    loop = FakeLoop(FakeGpu(cost_ns=5_000), turn_ns=SECOND)
    timed = loop.turns(40)
    first = timed.index(len(TURN))
    burst = timed[first : first + BURST_STEPS + 1]
    assert burst == [len(TURN)] * BURST_STEPS + [1]
    assert 0 in timed


@pytest.mark.parametrize("turn_ns", [300_000, 4 * MS, 50 * MS, SECOND])
def test_cost_stays_within_the_budget(turn_ns):
    gpu = FakeGpu(cost_ns=2_000)
    loop = FakeLoop(gpu, turn_ns=turn_ns)
    begun_ns, count = gpu.now_ns, 8_000
    loop.turns(count)
    spent_ns = len(gpu.calls) * gpu.cost_ns
    a_burst_ns = BURST_STEPS * 6 * 20_000
    memory_ns = 10_000 * (gpu.now_ns - begun_ns) // SECOND
    assert spent_ns <= min((gpu.now_ns - begun_ns) / 1000, count * 12_000) + a_burst_ns + memory_ns
    assert loop.times()


def test_bursts_come_again_and_again():
    loop = FakeLoop(FakeGpu(cost_ns=2_000), turn_ns=MS)
    timed = loop.turns(5_000)
    begins = [i for i, (before, after) in enumerate(pairwise(timed)) if after == len(TURN) != before]
    assert len(begins) >= 4


def test_a_record_that_waits_for_room_in_the_queue_is_not_our_cost():
    gpu = FakeGpu()
    loop = FakeLoop(gpu)
    plain = gpu.record

    def waits(event, stream):
        gpu.now_ns += 300 * MS
        plain(event, stream)

    gpu.record = waits
    assert sum(loop.turns(400)) > 100


def test_gradient_accumulation_is_one_turn(loop, unlimited):
    begins = loop.clock._budget.begin_step
    begun = []
    loop.clock._budget.begin_step = lambda *arguments: begun.append(arguments) or begins(*arguments)
    micro = (FETCH_END, BACKWARD_BEGIN, BACKWARD_END)
    loop.turns(10, (*micro, *micro, *micro, OPTIMIZER_BEGIN, OPTIMIZER_END))
    assert len(begun) == pytest.approx(10, abs=1)


def test_a_turn_of_more_boundaries_than_there_are_events(loop, unlimited):
    micro = (FETCH_END, BACKWARD_BEGIN, BACKWARD_END)
    boundaries = (*micro * gpu_events.POOL, OPTIMIZER_BEGIN, OPTIMIZER_END)
    assert loop.turns(4, boundaries)[2:] == [len(boundaries)] * 2
    assert len(loop.gpu.made) < gpu_events.POOL


def test_without_an_optimizer_a_backward_is_an_update(loop):
    assert sum(loop.turns(10, (BACKWARD_BEGIN, BACKWARD_END))) >= 10


def test_an_optimizer_that_was_compiled_since_is_no_longer_waited_for(loop):
    loop.turns(3)
    assert sum(loop.turns(4000, (FETCH_END, BACKWARD_BEGIN, BACKWARD_END)))
    known = len(loop.times())
    loop.turns(4000, (FETCH_END, BACKWARD_BEGIN, BACKWARD_END))
    assert len(loop.times()) > known


def test_what_is_nested_gets_no_number(loop, unlimited):
    loop.turns(2)
    scaler, optimizer = 11, 12
    for kind in (FETCH_END, BACKWARD_BEGIN):
        assert loop.boundary(kind)
    assert not loop.boundary(BACKWARD_BEGIN)  # a recomputed segment
    assert not loop.boundary(BACKWARD_END)
    assert loop.boundary(BACKWARD_END)
    assert loop.boundary(OPTIMIZER_BEGIN, scaler)
    assert not loop.boundary(OPTIMIZER_BEGIN, optimizer)
    assert not loop.boundary(OPTIMIZER_END, optimizer)
    assert loop.boundary(OPTIMIZER_END, scaler)


def test_a_closures_backwards_are_timed(loop, unlimited):
    closure = (OPTIMIZER_BEGIN, BACKWARD_BEGIN, BACKWARD_END, BACKWARD_BEGIN, BACKWARD_END, OPTIMIZER_END)
    assert loop.turns(4, closure)[2:] == [len(closure)] * 2


def test_a_step_that_raised_has_no_end(loop, unlimited):
    loop.turns(2)
    first, second = 11, 12
    loop.boundary(FETCH_END)
    loop.boundary(OPTIMIZER_BEGIN, first)
    assert loop.boundary(OPTIMIZER_BEGIN, first)  # begins anew
    loop.boundary(BACKWARD_BEGIN)
    loop.boundary(BACKWARD_END)
    assert loop.boundary(OPTIMIZER_BEGIN, second)
    assert loop.boundary(OPTIMIZER_END, second)


def test_alternating_updates_are_turns_of_their_own(loop):
    d_turn = TURN
    g_turn = (BACKWARD_BEGIN, BACKWARD_END, OPTIMIZER_BEGIN, OPTIMIZER_END)
    timed = [loop.turn(boundaries) for _ in range(4) for boundaries in (d_turn, g_turn)]
    assert timed[2:] == [5, 4] * 3


def test_nothing_is_touched_during_a_capture(loop, unlimited):
    loop.turns(3)
    known = len(loop.times())
    loop.gpu.in_capture = True
    loop.gpu.calls.clear()
    loop.turns(3)
    assert set(loop.gpu.calls) == {"is_capturing"}
    loop.gpu.in_capture = False
    loop.turns(3)
    assert loop.clock.on and len(loop.times()) > known


def test_a_gap_says_when_the_event_was_last_pending(unlimited):
    gpu = FakeGpu(behind_ns=250 * MS)
    loop = FakeLoop(gpu, turn_ns=100 * MS)
    loop.turns(20)
    marked, times = loop.boundaries(), loop.times()
    assert len(times) > 50
    for number, (time, seen_ns) in times.items():
        not_done_ns = seen_ns - time.gap_us * 1000
        assert marked[number].time_ns < not_done_ns <= marked[number].time_ns + gpu.behind_ns + 5_000
        assert not time.stream_idle
    gpu.behind_ns = 0
    loop.turns(20)
    time, _ = list(loop.times().values())[-1]
    assert time.stream_idle
    assert time.gap_us == 1  # it was recorded at once


def test_numbers_begin_again(loop, unlimited):
    loop.clock._events._number = LAST_EVENT - 2
    loop.turns(4)
    numbers = [m.flag for m in loop.marked if m.kind in TURN and m.flag]
    assert LAST_EVENT in numbers and FIRST_EVENT in numbers
    assert all(FIRST_EVENT <= number <= LAST_EVENT for number in numbers)


def test_the_pool_is_bounded_and_events_come_back(unlimited):
    gpu = FakeGpu(behind_ns=3600 * SECOND)
    loop = FakeLoop(gpu)
    timed = loop.turns(200)
    assert len(gpu.made) == gpu_events.POOL
    assert timed[-1] == 0
    gpu.now_ns += gpu.behind_ns
    gpu.behind_ns = 0
    loop.turns(100)
    assert len(gpu.made) == gpu_events.POOL
    assert loop.turn() == len(TURN)


def test_a_poll_queries_a_few_events_at_most(unlimited):
    gpu = FakeGpu(behind_ns=20 * SECOND)
    loop = FakeLoop(gpu)
    loop.turns(20)
    gpu.now_ns += 60 * SECOND
    gpu.calls.clear()
    loop.boundary(FETCH_END)
    assert gpu.calls.count("is_done") == gpu_events.POLL_LIMIT


def test_another_stream_ends_the_burst(loop):
    loop.turns(3)
    loop.boundary(FETCH_END)
    loop.gpu.current = FakeStream(0, 1)
    number = loop.boundary(BACKWARD_BEGIN)
    assert number and not loop.boundary(BACKWARD_END)
    loop.gpu.current = FakeStream(0, 0)
    loop.turns(200)
    assert number not in loop.times()
    assert loop.clock.on and len(loop.times()) > 30


def test_the_first_event_is_the_anchor_and_others_follow(unlimited):
    loop = FakeLoop(FakeGpu(), turn_ns=SECOND)
    loop.turns(30)
    first, *later = loop.anchors()
    assert first[1:] == (0, None)
    assert len(later) >= 4
    assert all(5 * SECOND <= elapsed_ns < 7 * SECOND for _, _, elapsed_ns in later)
    # their sum is the time between the first and the last
    marked = loop.boundaries()
    passed_ns = marked[later[-1][0]].time_ns - marked[first[0]].time_ns
    assert sum(elapsed_ns for *_, elapsed_ns in later) == pytest.approx(passed_ns, abs=10_000)
    kinds = (GPU_TIME, GPU_ANCHOR)
    assert [m.kind for m in loop.marked if m.flag == first[0] and m.kind in kinds] == [GPU_ANCHOR, GPU_TIME]
    assert [m.kind for m in loop.marked if m.flag == later[0][0] and m.kind in kinds] == [GPU_TIME, GPU_ANCHOR]


def test_hours_later_times_are_as_exact(unlimited):
    loop = FakeLoop(FakeGpu(), turn_ns=2 * SECOND)
    loop.turns(3600)
    times, marked = loop.times(), loop.boundaries()
    same_anchor = 0
    for before, after in pairwise(list(times)[-50:]):
        on_gpu = times[after][0].elapsed_ns - times[before][0].elapsed_ns
        if on_gpu > 0:
            same_anchor += 1
            assert on_gpu == pytest.approx(marked[after].time_ns - marked[before].time_ns, abs=1_500)
    assert same_anchor > 10


@pytest.mark.parametrize("pause_s, counts", [(100, 1), (1000, 2)])
def test_after_a_long_pause_a_new_count_begins(loop, unlimited, pause_s, counts):
    loop.turns(5)
    loop.gpu.now_ns += pause_s * SECOND
    loop.turns(5)
    assert [elapsed_ns for *_, elapsed_ns in loop.anchors()].count(None) == counts


def test_another_device_begins_a_new_count(loop, unlimited):
    loop.turns(5)
    loop.gpu.behind_ns = SECOND
    loop.turns(2)
    waiting = set(loop.boundaries()) - set(loop.times())
    loop.gpu.current = FakeStream(1, 0)
    loop.gpu.behind_ns = 0
    loop.turns(40)
    assert (1, None) in [anchor[1:] for anchor in loop.anchors()]
    assert not waiting & set(list(loop.times())[-20:])


def test_an_event_before_its_anchor_is_dropped(loop, unlimited):
    gpu = loop.gpu
    gpu.behind_ns = SECOND
    loop.turns(3)
    events = loop.clock._events
    assert events.pending
    late, early = events.pending[0], events.pending[1]
    late.event.at_ns, early.event.at_ns = gpu.now_ns, gpu.now_ns - 50 * MS
    gpu.now_ns += 10 * SECOND
    events.poll()
    assert late.number in loop.times() and early.number not in loop.times()


@pytest.mark.parametrize(
    "method", ["stream", "is_capturing", "is_idle", "new_event", "record", "is_done", "elapsed_ms"]
)
def test_an_error_turns_it_off_for_good(loop, method):
    def fails(*_):
        raise RuntimeError("device-side assert")

    setattr(loop.gpu, method, fails)
    loop.turns(4)
    assert not loop.clock.on
    loop.gpu.calls.clear()
    assert loop.turns(4) == [0] * 4
    assert loop.gpu.calls == []


def test_an_interrupt_is_the_users(loop):
    loop.turns(3)
    loop.gpu.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        loop.turn()
    loop.gpu.error = None
    loop.turns(300)
    assert loop.clock.on
    known = len(loop.times())
    loop.turns(300)
    assert len(loop.times()) > known


def test_events_outlive_a_clock_that_is_closed(loop):
    loop.turns(4)
    loop.clock.close()
    assert any(kept is loop.clock._events for kept in clock._abandoned)
    assert loop.turns(2) == [0, 0]
    loop.clock.record_event(5)
    assert not loop.clock.on


def test_memory_is_reported_once_a_second(loop):
    loop.turns(50)  # of 100 ms each
    memory = [(m.flag, m.value) for m in loop.marked if m.kind == TORCH_MEMORY]
    assert memory[:4] == [(0, 10), (1, 20), (2, 1), (3, 0)]
    assert 4 * 4 <= len(memory) <= 4 * 6


def test_memory_names_its_device(loop):
    loop.gpu.current = FakeStream(3, 0)
    loop.turns(3)
    assert {m.flag for m in loop.marked if m.kind == TORCH_MEMORY} == {3 << 4 | code for code in range(4)}


def test_unknown_memory_is_not_reported(loop):
    loop.gpu.figures = None
    loop.turns(30)
    assert loop.clock.on and loop.times()
    assert not [m for m in loop.marked if m.kind == TORCH_MEMORY]


def test_no_device_in_use(loop):
    loop.gpu.current = None
    loop.turns(30)
    assert loop.clock.on and not loop.times()
    loop.gpu.current = FakeStream(0, 0)
    loop.turns(30)
    assert loop.times()


def elsewhere(function, *arguments):
    """What a function returns in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def test_other_threads_are_not_timed(loop, unlimited):
    loop.turns(2)
    assert elsewhere(loop.turns, 3) == [0] * 3
    assert loop.turn() == len(TURN)


def test_batches_fetched_ahead_in_a_thread_do_not_make_it_the_training_thread(loop, unlimited):
    assert not elsewhere(loop.boundary, FETCH_END)
    rest = TURN[1:]
    assert loop.turns(4, rest)[2:] == [len(rest)] * 2


def test_reentrant_backwards_on_the_engines_thread_are_nested(loop, unlimited):
    loop.turns(2)
    assert loop.boundary(BACKWARD_BEGIN)
    assert not elsewhere(loop.boundary, BACKWARD_BEGIN)
    assert not elsewhere(loop.boundary, BACKWARD_END)
    assert loop.boundary(BACKWARD_END)


def test_a_loop_that_goes_on_in_another_thread_is_found(loop, unlimited):
    loop.turns(3)
    loop.gpu.now_ns += turns.STALE_NS
    assert sum(elsewhere(loop.turns, 4))
    assert loop.turns(2) == [0, 0]


def test_a_backward_that_never_ended_is_forgotten(loop, unlimited):
    without_fetch = TURN[1:]
    loop.turns(3, without_fetch)
    loop.boundary(BACKWARD_BEGIN)  # and the user interrupts, before its end is marked
    loop.turns(3, without_fetch)
    loop.gpu.now_ns += turns.STALE_NS
    assert loop.turns(4, without_fetch)[-1] == len(without_fetch)


def test_a_batch_begins_everything_anew(loop, unlimited):
    loop.turns(3)
    loop.boundary(BACKWARD_BEGIN)  # and the user interrupts, before its end is marked
    assert loop.turns(3) == [len(TURN)] * 3


def test_steps_of_optimizers_within_a_backward_are_part_of_it(loop, unlimited):
    loop.turns(2)
    assert loop.boundary(BACKWARD_BEGIN)
    assert not loop.boundary(OPTIMIZER_BEGIN, 1)
    assert not loop.boundary(OPTIMIZER_END, 1)
    assert loop.boundary(BACKWARD_END)


def test_a_pending_event_proves_nothing_of_another_stream(loop, unlimited):
    loop.turns(3)
    loop.gpu.behind_ns = SECOND
    loop.turns(2)
    events, gpu = loop.clock._events, loop.gpu
    first, second = events.pending[0], events.pending[1]
    events.pending[1] = second._replace(stream=FakeStream(0, 9))
    events.poll()  # the first is not done
    gpu.now_ns += 10 * SECOND
    events.poll()
    assert loop.times()[first.number][0].gap_us is not None
    assert loop.times()[second.number][0].gap_us is None


def test_an_idle_clock_still_reports_what_it_recorded(loop, monkeypatch):
    loop.turns(3)
    loop.gpu.behind_ns = SECOND
    loop.turns(3)
    waiting = {pending.number for pending in loop.clock._events.pending}
    assert waiting
    loop.clock._left = 0
    monkeypatch.setattr(budget.Budget, "is_paid", False)
    loop.marked.clear()
    assert loop.turns(40) == [0] * 40
    assert waiting <= set(loop.times())
    assert len([m for m in loop.marked if m.kind == TORCH_MEMORY]) >= 12


class PausingLoop(FakeLoop):
    """As the hooks do it: while the clock pauses they do not call it."""

    def __init__(self, gpu, turn_ns):
        super().__init__(gpu, turn_ns)
        self.clock = GpuClock(gpu, self.emit, lambda: gpu.now_ns, pause=self.pause)
        self.pauses = []
        self.paused_backwards = 0

    def pause(self, backwards):
        assert backwards > 0 and not self.clock._events.pending
        self.pauses.append(backwards)
        self.paused_backwards = backwards

    def boundary(self, kind, key=0):
        self.paused_backwards -= self.paused_backwards > 0 and kind == BACKWARD_BEGIN
        if self.paused_backwards:
            self.emit(kind, key, 0)
            return 0
        return super().boundary(kind, key)


@pytest.mark.parametrize("turn_ns", [MS, 50 * MS])
@pytest.mark.parametrize("boundaries", [TURN, TURN[1:], (*TURN[:3], *TURN)])
def test_a_clock_that_pauses_keeps_to_its_budget_and_resumes(turn_ns, boundaries):
    gpu = FakeGpu(cost_ns=2_000)
    loop = PausingLoop(gpu, turn_ns)
    begun_ns, count = gpu.now_ns, 3_000
    timed = loop.turns(count, boundaries)
    spent_ns = len(gpu.calls) * gpu.cost_ns
    seconds = (gpu.now_ns - begun_ns) / SECOND
    a_burst_ns = BURST_STEPS * 10 * 20_000
    assert spent_ns <= min(seconds * MS, count * 12_000) + a_burst_ns + 10_000 * seconds
    assert loop.pauses and len(loop.times()) >= BURST_STEPS
    assert timed.count(len(boundaries)) >= BURST_STEPS
    assert spent_ns >= 0.4 * min(seconds * MS, count * 12_000)  # it does not pause longer than it must
    reported = len([m for m in loop.marked if m.kind == TORCH_MEMORY])
    assert reported >= 2 * int(seconds)


def test_a_loop_without_backwards_has_no_pause():
    loop = PausingLoop(FakeGpu(cost_ns=2_000), MS)
    loop.turns(3_000, (FETCH_END, OPTIMIZER_BEGIN, OPTIMIZER_END))
    assert not loop.pauses
    assert len(loop.times()) > 50
