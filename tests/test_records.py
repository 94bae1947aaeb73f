"""Records as objects: what hundreds of ranks hold of them at a time."""

import gc

import msgspec
import pytest

from tuimon import records
from tuimon.records import PhaseTime, Steps

STRUCTS = [kind for kind in vars(records).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_the_garbage_collector_goes_through_no_record(kind):
    assert kind.__struct_config__.gc is False


def test_nor_is_one_that_was_read():
    line = b'{"type":"steps","t":1,"pid":1,"window_s":1,"count":1,"first_index":0,"total_ns":1,"phases":[["data",1]]}'
    record = msgspec.json.decode(line, type=Steps)
    assert record.phases == [PhaseTime("data", 1)]
    assert not gc.is_tracked(record) and not gc.is_tracked(record.phases[0])
