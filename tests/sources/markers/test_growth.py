"""What the source holds does not grow with the length of a run, with its threads, processes, workers or names."""

import os

import pytest

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader
from tests.state_size import size_of, sizes_by_type
from tuimon.agent.ring import layout
from tuimon.agent.ring.writer import RingWriter
from tuimon.records import Steps
from tuimon.sources.gpu_clock.tracker import GpuTracker
from tuimon.sources.loop.step import MarkedStretch
from tuimon.sources.markers import follower as module
from tuimon.sources.markers.follower import RingFollower
from tuimon.sources.markers.source import MarkerSource
from tuimon.sources.process_table import ProcessTable


class Run(FakeReader):
    """A process that runs for as long as a test likes: markers go in, its threads come and go."""

    def __init__(self, monkeypatch):
        super().__init__(())
        self.live = set()
        self.now_ns = 10 * SECOND
        self.names = ["?"]
        monkeypatch.setattr(module.procfs, "start_ticks", lambda pid: 0 if pid == self.pid else None)
        monkeypatch.setattr(module.procfs, "thread_ids", lambda pid: sorted(self.live))
        self.follower = RingFollower(self, 1.0, self.now_ns)

    def meta(self):
        return {}

    def loading(self):
        return iter(())

    def name(self, number):
        return self.names[number] if 0 < number < len(self.names) else "?"

    def read(self):
        out, self.waiting = sorted(self.waiting), []
        return out

    def write(self, tid, script, at_ns=None):
        begin_ns = self.now_ns if at_ns is None else at_ns
        self.waiting += [layout.Marker(t, kind, flag, tid, value) for t, kind, flag, value in markers(script, begin_ns)]

    def second(self):
        """A second passes; the Steps records of it."""
        self.now_ns += SECOND
        return [record for record in self.follower.windows(self.now_ns) if isinstance(record, Steps)]


@pytest.fixture
def run(monkeypatch):
    return Run(monkeypatch)


def holds_still(run, seconds, fill, warm_up=5):
    """What the follower holds after a while and after much longer is the same, but for a few counters' digits."""
    steps = []
    for at in range(warm_up):
        fill(at)
        steps += run.second()
    before = sizes_by_type(run.follower)
    for at in range(warm_up, seconds):
        fill(at)
        steps += run.second()
    after = sizes_by_type(run.follower)
    assert after.total() <= before.total() * 1.02 + 2000, after - before
    return steps


def test_steps_of_a_second_training_thread_are_not_kept(run):
    """4,000 of them, beside a training thread that makes more."""
    run.live = {42, 43}
    quick = "fetch:0.1 wait:0.1 bwd:0.1 opt:0.1 "

    def fill(_):
        run.write(42, quick * 420)
        run.write(43, quick * 400)

    steps = holds_still(run, 10, fill)
    assert sum(record.count for record in steps) == 10 * 420 - 1
    assert steps[-1].first_index + steps[-1].count == 10 * 420 - 1
    assert sum(record.backwards for record in steps) == 10 * 420


def test_threads_that_come_and_go_are_forgotten(run):
    """10,000 threads, each with a fetch and a range of its own; the training goes on beside them, counted whole."""
    run.names.append("range")

    def fill(second):
        run.live = {42}
        run.write(42, PLAIN * 60)
        for number in range(200):
            tid = 1000 + second * 200 + number
            run.write(tid, "fetch:1 wait:1", run.now_ns + number * 4 * MS)
            run.waiting.append(layout.Marker(run.now_ns + number * 4 * MS + 1, layout.RANGE_PUSH, 0, tid, 1))

    steps = holds_still(run, 50, fill)
    assert sum(record.count for record in steps) == 50 * 60 - 1


def test_leads_without_steps_are_bounded():
    tracker = GpuTracker(42, lambda: True)
    event = layout.pack_gpu_time(0, 5, True)
    tracker.feed_marker(0, layout.GPU_ANCHOR, 3, layout.pack_gpu_anchor(0, None))
    for number in range(16_000):
        begin, end = number * 10 * MS, number * 10 * MS + 5 * MS
        kind, flag = layout.BACKWARD_BEGIN, 3 + number % 1000
        tracker.add_stretch(MarkedStretch("forward", begin, end, kind, flag, 0, None, False, False, 0), 42)
        tracker.feed_marker(end + MS, layout.GPU_TIME, 3 + number % 1000, event + (end & (1 << 39) - 1))
        if number % 100 == 0:
            list(tracker.records(end, 1.0))
        if number == 8_000:
            before = size_of(tracker)
    assert size_of(tracker) <= before * 1.5


def test_what_ended_processes_reported_is_forgotten(tmp_path, monkeypatch):
    """300 processes with a ring each, one after the other: facts, names, trainers and paths go with them."""
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path))
    table = ProcessTable(os.getpid(), "r1")
    source = MarkerSource(table, 1.0)
    sizes = []
    for number in range(300):
        writer = RingWriter(str(tmp_path / "x.ring"), slot_count=64)
        writer.set_meta({"run": "r1", "pid": os.getpid(), "torch": "2.13.0"})
        ring = (tmp_path / "x.ring").rename(tmp_path / f"{os.getpid()}-{number + 1}.ring")
        with ring.open("r+b") as file:  # start ticks in the header
            file.seek(20)
            file.write((number + 1).to_bytes(8, "little"))
        source.read()
        source.read()
        assert not ring.exists()
        sizes.append(size_of((table, source)))
    assert sizes[-1] <= sizes[20] * 1.02
    assert (table.facts, table.named) == ({}, ())


def test_a_ring_that_names_65536_threads_makes_a_few_loops(run):
    sizes = []
    for first in range(0, 65_536, 8192):
        for tid in range(first, first + 8192):
            run.waiting.append(layout.Marker(run.now_ns + tid, layout.BACKWARD_BEGIN, 0, tid, 0))
        run.second()
        sizes.append(size_of(run.follower))
    assert max(sizes[4:]) <= 1.1 * max(sizes[:4])


def test_a_training_that_moves_from_thread_to_thread_is_counted_whole(run):
    """An epoch a thread: each ends, the next begins from nothing; the number of steps goes on."""
    steps = []
    for epoch in range(30):
        run.live = {42, 100 + epoch}
        for _ in range(3):
            run.write(100 + epoch, PLAIN * 60)
            steps += run.second()
    for _ in range(3):
        steps += run.second()
    assert steps[-1].first_index + steps[-1].count == 30 * 180 - 1
