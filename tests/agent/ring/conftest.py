"""A small ring, and who reads it."""

import pytest

from tests.agent.ring.markers import SLOTS
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.ring.writer import RingWriter


@pytest.fixture
def writer(tmp_path):
    return RingWriter(str(tmp_path / "1-1.ring"), slot_count=SLOTS)


@pytest.fixture
def reader(writer):
    reader = RingReader(writer.path)
    reader.read()
    yield reader
    reader.close()
