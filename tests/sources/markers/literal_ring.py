"""A ring that holds literal markers."""

from tests.sources.loop.loop_script import MS
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import Columns
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

PLAIN = "fetch:5 wait:3 bwd:4 wait:1 opt:2 wait:1 "  # 16 ms
SECOND = 1000 * MS


def columns_of(markers):
    """The markers as a reader of rings hands them out."""
    columns = Columns([], [], [])
    for time_ns, kind, flag, tid, value in markers:
        columns.append(time_ns, kind | flag << 16 | tid << 32, value)
    return columns


class FakeReader:
    """A ring that holds literal markers."""

    pid = 42
    path = "/nowhere/42-0.ring"
    start_ticks = 0
    dropped = 0
    lost = 0  # markers that the next read finds overwritten
    held_ns = 0

    def held_until_ns(self):
        return self.held_ns

    def __init__(self, sequence):
        self.waiting = [layout.Marker(time_ns, kind, flag, 7, value) for time_ns, kind, flag, value in sequence]

    def meta(self):
        return {"gc": True}

    def read(self):
        out, self.waiting = self.waiting, []
        self.dropped, self.lost = self.dropped + self.lost, 0
        return out

    def read_columns(self):
        return columns_of(self.read())

    def name(self, number):
        return {1: "batch\x1ftrain.py\x1fmain\x1f12", 2: "loss/a"}[number]


class LiveReader(FakeReader):
    """A ring that is written while it is read: it gives what is dated up to ``now_ns``."""

    now_ns = reads = 0

    def read(self):
        self.reads += 1
        out = [marker for marker in self.waiting if marker.time_ns <= self.now_ns]
        self.waiting = self.waiting[len(out) :]
        return out


def follow(sequence, now_ns):
    follower = RingFollower(FakeReader(sequence), 1.0, now_ns)
    return follower, [record for record in follower.windows(now_ns) if isinstance(record, Steps)]
