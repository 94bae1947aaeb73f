"""The queue that many records pass at once."""

import threading

from tests.waiting import until
from tuimon.monitor.poller import RecordQueue
from tuimon.records import Mark


def marks(*numbers):
    return [Mark(t=float(number), pid=1, name="m") for number in numbers]


def test_many_are_put_as_far_as_there_is_room_and_taken_in_order():
    records = RecordQueue(5)
    assert records.put_many(marks(*range(8)), 0.0) == 5
    assert records.put_many(marks(9), 0.0) == 0
    assert records.get_many(3) == marks(0, 1, 2)
    assert records.put_many(marks(5), 0.0) == 1
    assert records.get_many(100) == marks(3, 4, 5)
    assert records.get_many(100) == [] and records.empty()


def test_one_that_waits_for_room_goes_on_when_some_are_taken():
    records, done = RecordQueue(2), []
    records.put_many(marks(0, 1), 0.0)
    writer = threading.Thread(target=lambda: done.append(records.put_many(marks(2), 60.0)))
    writer.start()
    records.get_many(1)
    until(lambda: done)
    writer.join()
    assert done == [1] and records.get_many(9) == marks(1, 2)


def test_one_that_waits_for_records_gets_those_that_come():
    records, found = RecordQueue(), []
    reader = threading.Thread(target=lambda: found.append(records.get_many(9, 60.0)))
    reader.start()
    records.put_many(marks(0, 1), 0.0)
    until(lambda: found)
    reader.join()
    assert found == [marks(0, 1)]
