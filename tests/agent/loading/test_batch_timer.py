"""Where the time of a process that makes batches goes, and how long finished ones wait."""

from functools import partial
from types import SimpleNamespace

import pytest

from tests.agent.loading.measured import measured
from tests.agent.programs import is_ours
from tuimon.agent.loading import worker
from tuimon.agent.loading.worker import BatchTimer, HandOver
from tuimon.agent.ring.layout import LOADING_BYTES
from tuimon.agent.ring.loading_slots import (
    COLLATE,
    IN_PROCESS,
    ITEMS,
    UNMEASURED,
    WAITING,
    LoadingSlot,
    used_slots,
)

MS = 1_000_000


class Slot:
    """The latest figures: state, since, batches, items, collate, wait, hand over."""

    figures = ()

    def write(self, *figures):
        self.figures = figures


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now_ns=0)
    monkeypatch.setattr(worker, "monotonic_ns", lambda: clock.now_ns)
    return clock


def enter(timer, clock, state, after_ms, batches=0):
    clock.now_ns += after_ms * MS
    timer.enter(state, batches)


def test_a_batch_is_waiting_then_items_then_collate(clock):
    slot = Slot()
    timer = BatchTimer(slot)
    enter(timer, clock, ITEMS, 5)
    enter(timer, clock, COLLATE, 8)
    enter(timer, clock, WAITING, 2, batches=1)
    assert slot.figures == (WAITING, 15 * MS, 1, 8 * MS, 2 * MS, 5 * MS, UNMEASURED)


@pytest.mark.trust
@pytest.mark.parametrize("jump_ns", [-(1 << 62), 1 << 62])
def test_a_clock_that_the_program_replaces_fails_in_no_batch(jump_ns, clock):
    area = bytearray(LOADING_BYTES)
    timer = BatchTimer(LoadingSlot(area, 0, loader=1, worker=IN_PROCESS, workers=0, dataset=7))
    for _ in range(4):  # freezegun's clock is the real one whenever a thread of the standard library asks
        enter(timer, clock, ITEMS, 1)
        clock.now_ns += jump_ns
        enter(timer, clock, WAITING, 1, batches=1)
        clock.now_ns -= jump_ns
    assert list(used_slots(area, area)) == []


def test_short_states_are_written_with_the_next_wait(clock):
    slot = Slot()
    timer = BatchTimer(slot)
    clock.now_ns += MS // 2
    timer.enter(ITEMS)
    assert slot.figures == ()
    clock.now_ns += MS // 2
    timer.enter(WAITING, 1)
    assert slot.figures[2:6] == (1, MS // 2, 0, MS // 2)


def test_waiting_is_handing_over_until_the_batch_has_left(clock):
    slot, hand_over = Slot(), HandOver()
    timer = BatchTimer(slot, hand_over)
    put, send = partial(hand_over.tuimon_put, lambda batch: None), partial(hand_over.tuimon_send, lambda data: None)
    timer.enter(ITEMS)
    enter(timer, clock, WAITING, 4, batches=1)
    put("batch")
    clock.now_ns += 3 * MS
    send(b"batch")
    enter(timer, clock, ITEMS, 7)
    assert slot.figures[3:] == (4 * MS, 0, 7 * MS, 3 * MS)


@pytest.mark.parametrize(("each_ns", "is_quick"), [(MS // 10, True), (MS, False)])
def test_quick_batches_are_not_worth_timing(clock, each_ns, is_quick):
    timer = BatchTimer(Slot())
    verdicts = []
    for _ in range(64):
        timer.enter(ITEMS)
        clock.now_ns += each_ns
        timer.enter(WAITING, 1)
        verdicts.append(timer.is_quick())
    assert verdicts == [False] * 63 + [is_quick]


pytest.importorskip("torch")

#: A batch whose pickling takes a while, as that of many small objects does.
SLOW_TO_PICKLE = """
class Heavy:
    def __init__(self, value, seconds):
        self.value, self.seconds = value, seconds

    def __reduce__(self):
        busy(self.seconds, "pickling_ms")
        with open(os.path.join(FOLDER, f"truth-{os.getpid()}.json"), "w") as file:
            json.dump(done, file)
        return Heavy, (self.value, self.seconds)


def heavy(items):
    return Heavy(torch.stack(items), 0.02)


done["pickling_ms"] = 0.0
"""
LOOP = """
for batch in loader:
    model(batch.value).sum().backward()
    optimizer.step()
end()"""


@pytest.mark.torch
@pytest.mark.parametrize(("context", "kind"), [("fork", "Stream()"), ("spawn", "ImageSet(64, 0.0)")])
def test_what_pickling_takes_is_handing_over(tmp_path, context, kind):
    """One batch at a time: a worker has nothing else to do while its batch is pickled."""
    main = f"""
loader = DataLoader({kind}, 8, collate_fn=heavy, num_workers=1, prefetch_factor=1, multiprocessing_context="{context}")
{LOOP}"""
    records, truths = measured(tmp_path, main, SLOW_TO_PICKLE)
    rows = [worker for record in records for worker in record.workers]
    batches, collate_ms, hand_over_ms = (
        sum(getattr(row, name) for row in rows) for name in ("batches", "collate_ms", "hand_over_ms")
    )
    assert batches == 8
    assert hand_over_ms >= 0.95 * truths[rows[0].pid]["pickling_ms"] >= 0.95 * 8 * 20
    assert hand_over_ms > collate_ms


def test_busy_until_the_last_batch_has_left(clock):
    hand_over = HandOver()
    put, send = partial(hand_over.tuimon_put, lambda batch: None), partial(hand_over.tuimon_send, lambda data: None)
    assert hand_over.busy_ns(0, 10) == 0
    put("one")
    put("two")
    assert hand_over.busy_ns(0, 10) == 10
    clock.now_ns = 20
    send(b"one")
    assert hand_over.busy_ns(15, 30) == 15
    clock.now_ns = 40
    send(b"two")
    assert hand_over.busy_ns(15, 50) == 25
    assert hand_over.busy_ns(40, 50) == hand_over.busy_ns(45, 50) == 0


def test_what_cannot_be_pickled_has_left_as_well(clock):
    errors = []
    hand_over = HandOver()
    hand_over.tuimon_put(lambda batch: None, "one")
    clock.now_ns = 20
    hand_over.tuimon_error(lambda *what: errors.append(what), ValueError, "one")
    assert hand_over.busy_ns(0, 100) == 20
    assert errors == [(ValueError, "one")]


def test_errors_go_on_without_a_trace_of_ours(clock):
    def fails(data):
        raise BrokenPipeError

    hand_over = HandOver()
    for hook in (hand_over.tuimon_put, hand_over.tuimon_send):
        with pytest.raises(BrokenPipeError) as raised:
            hook(fails, b"")
        assert [entry.name for entry in raised.traceback][-1] == "fails"
        assert not any(is_ours(entry.path) for entry in raised.traceback)
    assert hand_over.busy_ns(0, 100) == 0
