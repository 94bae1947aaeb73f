"""Windows of ranks out of focus: fewer of them, with the same steps."""

import pytest

from tests.sources.loop.loop_script import markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, LiveReader
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.ring.writer import RingWriter
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower
from tuimon.sources.markers.source import MarkerSource
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.window_lengths import LONGEST_S, WindowEnds, longest_intervals

LOOP = PLAIN.replace("wait:1", "wait:43")  # 100 ms


class Reader(LiveReader):
    """One of many ranks."""

    def meta(self):
        return {"world_size": 64}

    def is_filling(self):
        return False


class Ring:
    """A ring that is followed, second by second."""

    def __init__(self, script):
        self.reader = Reader(markers(script, start_ns=10 * SECOND))
        self.follower = RingFollower(self.reader, 1.0, 10 * SECOND)
        self.records = []
        self.now_s = 10

    def follow(self, until_s, longest):
        begin = len(self.records)
        while self.now_s < until_s:
            self.now_s += 1
            self.reader.now_ns = now_ns = self.now_s * SECOND
            if self.follower.is_due(now_ns, longest):
                self.records += [record for record in self.follower.windows(now_ns) if isinstance(record, Steps)]
        return self.records[begin:]


def test_a_rank_that_has_made_steps_for_a_while_has_a_quarter_of_the_windows_and_of_the_reads():
    long = Ring(LOOP * 700)
    long.follow(40, longest=4)
    reads = long.reader.reads
    later = long.follow(70, longest=4)
    assert [(record.t, record.window_s) for record in later] == [(t, 4.0) for t in range(44, 69, 4)]
    assert long.reader.reads == reads + len(later)
    assert [record.window_s for record in long.records[:10]] == [1.0] * 10


def test_a_rank_that_stands_still_is_reported_every_second_before_it_may_hang():
    ring = Ring(LOOP * 335)  # until 43.5 s
    ring.follow(43, longest=4)
    quiet = [record for record in ring.follow(70, longest=4) if not record.count]
    assert [record.t for record in quiet][:4] == [48.0, 49.0, 50.0, 51.0]
    assert quiet[0].open_for_s < 10
    assert quiet[-1].open_for_s == pytest.approx(70 - 43.5, abs=0.2)


@pytest.fixture
def writer(tmp_path):
    writer = RingWriter(str(tmp_path / "7-1.ring"))
    yield writer
    writer.unlink()


def test_a_ring_that_fills_is_read_before_its_window_ends(writer):
    reader = RingReader(writer.path)
    assert not reader.is_filling()
    for _ in range(layout.SLOT_COUNT // 8 + 1):
        writer.emit(layout.MARK)
    writer.flush()
    assert reader.is_filling()
    reader.read()
    assert not reader.is_filling() and reader.dropped == 0
    for _ in range(2 * layout.SLOT_COUNT // 1024):  # it has gone round
        for _ in range(1024):
            writer.emit(layout.MARK)
        writer.flush()
    assert reader.is_filling()
    reader.close()


class Follower:
    """Stands for one of many, and keeps what it was told."""

    trains, longest = True, 0

    def __init__(self, pid):
        self.pid = pid

    def is_due(self, now_ns, longest):
        self.longest = longest
        return False


@pytest.mark.parametrize(("ranks", "expected"), [(8, 1), (16, 2), (32, 4), (64, 8)])
def test_only_ranks_in_focus_and_those_that_end_keep_short_windows(ranks, expected):
    table = ProcessTable(2, "r1")
    source = MarkerSource(table, 1.0, lambda: 100 * SECOND)
    source.followers = {f"{n}-1.ring": Follower(n) for n in range(ranks)}
    table.focus = frozenset({3})
    source.due_rings({"5-1.ring"})
    short = {pid for pid in range(ranks) if source.followers[f"{pid}-1.ring"].longest == 1}
    assert short == ({3, 5} if expected > 1 else set(range(ranks)))
    assert max(follower.longest for follower in source.followers.values()) == expected


@pytest.mark.parametrize("interval_s", [0.25, 0.5, 2.0, 3.0, 5.0, 10.0])
def test_they_are_no_longer_than_the_longest_whatever_the_interval(interval_s):
    assert longest_intervals(64, interval_s) * interval_s <= max(interval_s, LONGEST_S)


def ends_of(ends, begin_s, windows):
    at_s = begin_s
    for _ in range(windows):
        at_s = ends.of(at_s * SECOND) // SECOND
        ends.note_window(is_calm=True)
        yield at_s


def test_the_open_window_is_cut_short_when_it_may_no_longer_be_long():
    ends = WindowEnds(SECOND)
    ends.longest = 4
    assert list(ends_of(ends, 10, 4))[-1] == 20
    ends.longest = 1
    assert list(ends_of(ends, 20, 3)) == [21, 22, 23]


# -- how often rings are read: the fewer reads, the less many ranks cost


class Rings:
    """Those of some processes, which end when the test does."""

    def __init__(self, folder):
        self.folder = folder
        self.now_s = 100.0
        self.source = MarkerSource(ProcessTable(2, "r1"), 1.0, lambda: int(self.now_s * 1e9))
        self.writers = []

    def add(self, count):
        for _ in range(count):
            self.writers.append(RingWriter(str(self.folder / f"{len(self.writers)}-1.ring")))
            self.writers[-1].set_meta({"run": "r1"})
        self.period_after(0.5)
        self.period_after(0.5)

    def period_after(self, seconds, markers=0):
        """Until the next read, when this long has passed and the first ring has got some markers."""
        for _ in range(markers):
            self.writers[0].emit(layout.OPTIMIZER_BEGIN)
        self.writers[0].flush()
        self.now_s += seconds
        list(self.source.read())
        return self.source.period_s


@pytest.fixture
def rings(tmp_path, monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path))
    monkeypatch.setattr("tuimon.sources.markers.source.goes_on", lambda *_: True)
    rings = Rings(tmp_path)
    yield rings
    rings.source.close()


def test_of_many_calm_rings_each_is_read_once_a_window_soon_after_its_end(rings):
    rings.add(8)
    assert rings.period_after(0.25, markers=4) == pytest.approx(0.85)
    assert rings.period_after(0.5) == pytest.approx(0.35)
    assert rings.period_after(0.35) == pytest.approx(1.0)  # the longest, right after the end


def test_few_rings_are_read_sooner(rings):
    rings.add(2)
    assert rings.period_after(0.25) == 0.25


def test_a_ring_that_fills_fast_is_read_sooner_until_it_is_calm(rings):
    rings.add(8)
    assert rings.period_after(0.25, markers=layout.SLOT_COUNT // 16) == 0.25
    assert rings.period_after(0.25) > 0.25
