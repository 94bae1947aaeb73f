"""Where the time of a process that makes batches goes, with a clock that a test moves."""

import pytest

from tuimon.agent.loading import batch_timer
from tuimon.agent.loading.batch_timer import BatchTimer, HandOver
from tuimon.agent.ring.loading_slots import COLLATE, ITEMS, UNMEASURED, WAITING

MS = 1_000_000


class Slot:
    """The latest figures: state, since, batches, items, collate, wait, hand over."""

    figures = ()

    def write(self, *figures):
        self.figures = figures


class Time:
    now_ns = 0

    def __call__(self):
        return self.now_ns


@pytest.fixture
def time(monkeypatch):
    clock = Time()
    monkeypatch.setattr(batch_timer, "monotonic_ns", clock)
    monkeypatch.setattr("tuimon.agent.loading.batch_timer.monotonic_ns", clock)
    return clock


def enter(timer, time, state, after_ms, batches=0):
    time.now_ns += after_ms * MS
    timer.enter(state, batches)


def test_a_batch_is_waiting_then_items_then_collate(time):
    slot = Slot()
    timer = BatchTimer(slot)
    enter(timer, time, ITEMS, 5)
    enter(timer, time, COLLATE, 8)
    enter(timer, time, WAITING, 2, batches=1)
    assert slot.figures == (WAITING, 15 * MS, 1, 8 * MS, 2 * MS, 5 * MS, UNMEASURED)


def test_short_states_are_written_with_the_next_wait(time):
    slot = Slot()
    timer = BatchTimer(slot)
    time.now_ns += MS // 2
    timer.enter(ITEMS)
    assert slot.figures == ()
    time.now_ns += MS // 2
    timer.enter(WAITING, 1)
    assert slot.figures[2:6] == (1, MS // 2, 0, MS // 2)


def test_waiting_is_handing_over_until_the_batch_has_left(time):
    slot, hand_over = Slot(), HandOver()
    timer = BatchTimer(slot, hand_over)
    put, send = hand_over.wrapped_put(lambda batch: None), hand_over.wrapped_send(lambda data: None)
    timer.enter(ITEMS)
    enter(timer, time, WAITING, 4, batches=1)
    put("batch")
    time.now_ns += 3 * MS
    send(b"batch")
    enter(timer, time, ITEMS, 7)
    assert slot.figures[3:] == (4 * MS, 0, 7 * MS, 3 * MS)


@pytest.mark.parametrize(("each_ns", "is_quick"), [(MS // 10, True), (MS, False)])
def test_quick_batches_are_not_worth_timing(time, each_ns, is_quick):
    timer = BatchTimer(Slot())
    verdicts = []
    for _ in range(64):
        timer.enter(ITEMS)
        time.now_ns += each_ns
        timer.enter(WAITING, 1)
        verdicts.append(timer.is_quick())
    assert verdicts == [False] * 63 + [is_quick]
