"""How often rings are read: the fewer reads, the less many ranks cost."""

import pytest

from tuimon.agent.ring import layout
from tuimon.agent.ring.writer import RingWriter
from tuimon.sources.markers.source import MarkerSource
from tuimon.sources.process_table import ProcessTable


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
    monkeypatch.setattr("tuimon.sources.markers.source.goes_on", lambda reader: True)
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
