"""The same through a real ring file: what is written in the target is what the monitor reads."""

import time

import pytest

from tests.gpu_simulator import loops
from tests.gpu_simulator.comparison import lead_errors_us, shares
from tests.gpu_simulator.machine import US
from tests.gpu_simulator.training import Training
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.ring.writer import RingWriter
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

pytestmark = pytest.mark.usefixtures("ends")


class TrainingOnRing(Training):
    """Writes its markers to a file."""

    def __init__(self, path, monkeypatch, slots=1 << 16):
        super().__init__(drift_ppm=60)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.cpu.now_ns)
        self.writer = RingWriter(str(path), slots)
        self.follower = RingFollower(RingReader(str(path)), 1.0, self.cpu.now_ns)

    def emit(self, kind, value=0, flag=0):
        self.writer.emit(kind, value, flag)
        self.cpu.now_ns += US // 2


@pytest.fixture
def training(tmp_path, monkeypatch):
    return TrainingOnRing(tmp_path / "7-7.ring", monkeypatch)


def test_what_is_read_is_the_truth(training):
    records = training.run(loops.data_starved, 20)
    told = shares(records)
    assert told.steps >= 50
    for name in ("data", "forward", "backward", "optimizer"):
        assert told.of(name).span == pytest.approx(training.truth.share(name), rel=0.02, abs=0.01), name
    errors = lead_errors_us(training, records)
    assert errors
    assert max(error for error, _ in errors) < 50


def test_a_ring_that_overflows_loses_turns_and_nothing_else(tmp_path, monkeypatch):
    training = TrainingOnRing(tmp_path / "7-7.ring", monkeypatch, slots=512)
    records = training.run(loops.data_starved, 10)
    for _ in range(8):
        for _ in range(200):  # more than a ring, unread
            loops.data_starved(training)
        records += training.run(loops.data_starved, 4)
    assert sum(record.dropped for record in records if isinstance(record, Steps)) > 1000
    told = shares(records)
    assert told.steps >= 50
    for name in ("data", "forward", "backward", "optimizer"):
        assert told.of(name).span == pytest.approx(training.truth.share(name), rel=0.03, abs=0.01), name
