"""One thread for each source: schedule, failures, drops, stopping."""

import threading
from queue import Queue

from tests.waiting import until
from tuimon.errors import TuimonError
from tuimon.monitor import poller
from tuimon.monitor.poller import Poller
from tuimon.records import Mark, Notice
from tuimon.sources.base import Done, Source


class Fake(Source):
    """Reads what a function returns for the n-th call."""

    name = "fake"

    def __init__(self, read, period_s=0.001):
        self.period_s = period_s
        self.reads = 0
        self.closed = threading.Event()
        self.answer = read

    def read(self):
        self.reads += 1
        return self.answer(self.reads)

    def close(self):
        self.closed.set()


def mark(number):
    return Mark(t=float(number), pid=1, name="m")


def marks(*numbers):
    return [mark(number) for number in numbers]


def polled(read, records=None, period_s=0.001, **options):
    """What is read for the n-th call, the poller that does so and has begun, and its queue."""
    records = records or Queue()
    running = Poller(Fake(read, period_s), records, **options)
    running.start()
    return running.source, running, records


def taken(records):
    return [record for _ in range(records.qsize()) for record in records.get_nowait()]


def test_records_come_in_order_and_done_ends_it():
    def read(number):
        if number > 3:
            raise Done
        return marks(number)

    source, _, records = polled(read)
    until(source.closed.is_set)
    assert taken(records) == marks(1, 2, 3)


def test_a_full_queue_drops_and_counts():
    source, running, _ = polled(lambda number: marks(*range(5)), Queue(2), period_s=60.0)
    until(lambda: running.dropped)
    assert running.stop() and source.closed.is_set()
    assert running.dropped == 3 + 5  # the last read at the stop finds it full, too


def test_a_replay_waits_for_room_instead():
    def read(number):
        yield from marks(*range(600))
        raise Done

    _, running, records = polled(read, Queue(1), lossless=True)
    found = []
    until(lambda: found.extend(taken(records)) or running.done.is_set())
    assert found + taken(records) == marks(*range(600))
    assert running.dropped == 0


def test_what_a_replay_read_before_it_failed_is_put():
    def read(number):
        if number > 1:
            raise Done
        yield mark(1)
        raise OSError("the folder is gone")

    _, running, records = polled(read, lossless=True)
    until(lambda: running.source.reads == 2)
    first, second = taken(records)
    assert first == mark(1) and isinstance(second, Notice)
    running.stop()


def test_a_replay_that_nobody_takes_from_can_be_stopped():
    _, running, records = polled(lambda number: marks(*range(1000)), Queue(1), lossless=True)
    until(records.full)
    assert running.stop(20.0)


def test_failures_become_notices_and_it_tries_again(monkeypatch):
    monkeypatch.setattr(poller, "BACKOFF_S", (0.001, 0.002))

    def read(number):
        if number == 1:
            raise OSError("driver\x1b[31m lost\nsecond line")
        if number == 2:
            raise TuimonError("no py-spy", "pip install py-spy")
        if number == 3:
            return marks(3)
        raise Done

    source, _, records = polled(read)
    until(source.closed.is_set)
    first, second, third, well = taken(records)
    assert (first.source, first.level, first.message) == ("fake", "warning", "OSError: driver lost")
    assert (second.message, second.hint) == ("no py-spy", "pip install py-spy")
    assert (third, well.level) == (mark(3), "ok")


def test_stopping_wakes_it_for_one_last_read():
    source, running, records = polled(marks, period_s=3600.0)
    until(lambda: source.reads)
    assert running.stop() and source.closed.is_set()
    assert taken(records) == marks(1, 2)


def test_stopping_what_never_started():
    assert Poller(Fake(lambda number: []), Queue()).stop()


def test_a_source_that_hangs_does_not_hold_the_stop():
    release = threading.Event()
    source, running, _ = polled(lambda number: release.wait() and [])
    until(lambda: source.reads)
    assert not running.stop(0.01)
    release.set()
    until(source.closed.is_set)


def test_the_schedule_is_absolute_and_does_not_catch_up():
    now = [100.0]
    source = Fake(lambda number: [], period_s=1.0)
    running = Poller(source, Queue(), clock=lambda: now[0])
    assert running.next_due_s(100.0) == 101.0
    now[0] = 101.7  # a slow read: the next is still on the second
    assert running.next_due_s(101.0) == 102.0
    now[0] = 150.75  # asleep for long: a window has just been read, the next ends on the second
    assert running.next_due_s(102.0) == 151.0
