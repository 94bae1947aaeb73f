"""How often the threads of many ranks are read."""

from collections import Counter
from unittest import mock

import pytest

from tuimon.proc.procfs import ProcessStat
from tuimon.records import Threads
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.facts import ProcessFacts
from tuimon.sources.processes.followed import Followed
from tuimon.sources.processes.source import ProcessSource


class Meter:
    """Stands for the threads of one process."""

    def __init__(self):
        self.process = ProcessStat(1, 0.0, 0.0, 1 << 20, "python", "S", 5, 2)
        self.reads = 0

    def read_process(self):
        pass

    def read(self):
        self.reads += 1

    def end_window(self, window_s):
        return [], 0, 0.1


class Rank(Followed):
    """One whose facts do not change."""

    def refresh(self, name, *, orphaned):
        self.reads += 1


class Run:
    """Ranks that are known already, read second by second."""

    def __init__(self, ranks):
        self.now_s = 100.0
        table = ProcessTable(1, "r1")
        self.source = ProcessSource(table, 1.0, lambda: self.now_s)
        self.source.discover = lambda: None
        self.source.changed = lambda roles, now_s: ()
        for pid in range(2, ranks + 2):
            self.source.known[pid] = Rank(5, ProcessFacts(pid, 1, "python", ("python",), True), Meter())
            self.source.known[pid].reported = object()
        table.publish(dict.fromkeys(self.source.known, 5), {})
        with mock.patch("tuimon.proc.procfs.start_ticks", lambda pid: 5):
            for pid in self.source.known:
                table.mark_trainer(pid)

    def records(self, seconds):
        found = Counter()
        for _ in range(seconds):
            self.now_s += 1.0
            found.update(record.pid for record in self.source.read() if isinstance(record, Threads))
        return found


@pytest.mark.parametrize(("ranks", "records", "in_focus"), [(8, 40, 40), (64, 10, 40)])
def test_the_threads_of_ranks_out_of_focus_are_read_less_often_where_there_are_many(ranks, records, in_focus):
    run = Run(ranks)
    run.source.focus_on({3})
    run.records(20)  # new ones are read every second
    before = {pid: followed.meter.reads for pid, followed in run.source.known.items()}
    found = run.records(40)
    assert found[3] == in_focus
    assert {found[pid] for pid in found if pid != 3} == {records}
    assert {run.source.known[pid].meter.reads - before[pid] for pid in found if pid != 3} == {records}
