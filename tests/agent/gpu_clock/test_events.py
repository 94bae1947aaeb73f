"""Recorded events: their numbers, their times, their anchors, and how many there are."""

import pytest

from tests.agent.gpu_clock.fake_gpu import MS, SECOND, STEP, FakeGpu, FakeLoop, FakeStream
from tuimon.agent.gpu_clock import events as gpu_events
from tuimon.agent.ring.layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    FETCH_END,
    GPU_ANCHOR,
    GPU_TIME,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
)


def test_a_step_of_more_boundaries_than_there_are_events(loop, unlimited):
    micro = (FETCH_END, BACKWARD_BEGIN, BACKWARD_END)
    boundaries = (*micro * gpu_events.POOL, OPTIMIZER_BEGIN, OPTIMIZER_END)
    assert loop.steps(4, boundaries)[2:] == [len(boundaries)] * 2
    assert len(loop.gpu.made) < gpu_events.POOL


def test_a_gap_says_when_the_event_was_last_pending(unlimited):
    gpu = FakeGpu(behind_ns=250 * MS)
    loop = FakeLoop(gpu, step_ns=100 * MS)
    loop.steps(20)
    marked, times = loop.boundaries(), loop.times()
    assert len(times) > 50
    for number, (time, seen_ns) in times.items():
        not_done_ns = seen_ns - time.gap_us * 1000
        assert marked[number].time_ns < not_done_ns <= marked[number].time_ns + gpu.behind_ns + 5_000
        assert not time.stream_idle
    gpu.behind_ns = 0
    loop.steps(20)
    time, _ = list(loop.times().values())[-1]
    assert time.stream_idle
    assert time.gap_us == 1  # it was recorded at once


def test_the_pool_is_bounded_and_events_come_back(unlimited):
    gpu = FakeGpu(behind_ns=3600 * SECOND)
    loop = FakeLoop(gpu)
    timed = loop.steps(200)
    assert len(gpu.made) == gpu_events.POOL
    assert timed[-1] == 0
    gpu.now_ns += gpu.behind_ns
    gpu.behind_ns = 0
    loop.steps(100)
    assert len(gpu.made) == gpu_events.POOL
    assert loop.step() == len(STEP)


def test_a_poll_queries_a_few_events_at_most(unlimited):
    gpu = FakeGpu(behind_ns=20 * SECOND)
    loop = FakeLoop(gpu)
    loop.steps(20)
    gpu.now_ns += 60 * SECOND
    gpu.calls.clear()
    loop.boundary(FETCH_END)
    assert gpu.calls.count("is_done") == gpu_events.POLL_LIMIT


def test_the_first_event_is_the_anchor_and_others_follow(unlimited):
    loop = FakeLoop(FakeGpu(), step_ns=SECOND)
    loop.steps(30)
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


@pytest.mark.parametrize("pause_s, counts", [(100, 1), (1000, 2)])
def test_after_a_long_pause_a_new_count_begins(loop, unlimited, pause_s, counts):
    loop.steps(5)
    loop.gpu.now_ns += pause_s * SECOND
    loop.steps(5)
    assert [elapsed_ns for *_, elapsed_ns in loop.anchors()].count(None) == counts


def test_an_event_before_its_anchor_is_dropped(loop, unlimited):
    gpu = loop.gpu
    gpu.behind_ns = SECOND
    loop.steps(3)
    events = loop.clock.events
    assert events.pending
    late, early = events.pending[0], events.pending[1]
    late.event.at_ns, early.event.at_ns = gpu.now_ns, gpu.now_ns - 50 * MS
    gpu.now_ns += 10 * SECOND
    events.poll()
    assert late.number in loop.times() and early.number not in loop.times()


def test_a_pending_event_proves_nothing_of_another_stream(loop, unlimited):
    loop.steps(3)
    loop.gpu.behind_ns = SECOND
    loop.steps(2)
    events, gpu = loop.clock.events, loop.gpu
    first, second = events.pending[0], events.pending[1]
    events.pending[1] = second._replace(stream=FakeStream(0, 9))
    events.poll()  # the first is not done
    gpu.now_ns += 5 * SECOND
    events.poll()
    assert loop.times()[first.number][0].gap_us is not None
    assert loop.times()[second.number][0].gap_us is None


@pytest.mark.parametrize(("seconds", "known"), [(8, True), (9, False)])
def test_a_gap_that_is_too_long_to_be_told_is_not_told_shorter(loop, unlimited, seconds, known):
    loop.steps(3)
    loop.gpu.behind_ns = SECOND
    loop.steps(2)
    first = loop.clock.events.pending[0]
    loop.clock.events.poll()
    loop.gpu.now_ns += seconds * SECOND
    loop.clock.events.poll()
    assert (loop.times()[first.number][0].gap_us is not None) == known
