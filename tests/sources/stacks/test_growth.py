"""What the source of stack samples holds does not grow with threads that come and go."""

import os

from tests.state_size import size_of
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.window_records import WindowRecords


def test_parked_threads_that_have_ended_are_forgotten_and_live_ones_named_once():
    records = WindowRecords(ProcessTable(os.getpid(), None))
    key = (os.getpid(), 1)
    named, sizes = [], []
    for first in range(1000, 21_000, 50):
        parked = [(1, "pool"), *((tid, f"thread {tid}") for tid in range(first, first + 50))]
        named += records.newly_parked(key, parked, {tid for tid, _ in parked})
        sizes.append(size_of(records))
    assert len(named) == 20_001
    assert max(sizes[10:]) <= sizes[9] + 5000
