"""Markers of the GPU clock beside the others: nothing else changes by them."""

import pytest

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, follow
from tests.sources.markers.test_loaders import FACTS, LoaderScript
from tuimon.agent.ring import layout
from tuimon.records import GpuTime

EVAL = " ".join(["fetch@2:1 wait:2"] * 5) + " stop@2:1"


def numbered(sequence, first=layout.FIRST_EVENT):
    """The same markers with the number of an event at each boundary."""
    number = first
    out = []
    for time_ns, kind, flag, value in sequence:
        has_event = kind not in (layout.FETCH_BEGIN, layout.STEP) and not (kind == layout.FETCH_END and flag)
        out.append((time_ns, kind, number if has_event else flag, value))
        number = number + 1 if number < 0xFFFF else layout.FIRST_EVENT
    return out


@pytest.mark.parametrize("first", [layout.FIRST_EVENT, 0xFFFF - 50])
def test_steps_and_phases_are_the_same_with_numbers_of_events(first):
    script = " ".join([PLAIN] * 60 + [EVAL] + [PLAIN] * 60)
    sequence = markers(script, start_ns=10 * SECOND)
    _, plain = follow(sequence, 13 * SECOND)
    _, same = follow(numbered(sequence, first), 13 * SECOND)
    assert same == plain
    assert sum(record.eval_count for record in plain) > 0


def test_a_batch_with_an_event_is_no_end_of_the_data():
    plain, same = LoaderScript(FACTS), LoaderScript(FACTS)
    for script, flag in ((plain, 0), (same, 500)):
        for _ in range(10):
            script.put(layout.FETCH_BEGIN, 1 << layout.LOADER_SHIFT | 1, 4)
            script.put(layout.FETCH_END, 1 << layout.LOADER_SHIFT | 1, flag)
            script.put(layout.BACKWARD_BEGIN, 0, flag and flag + 1)
    assert same.records() == plain.records()


def test_what_the_clock_tells_and_what_nobody_knows_is_of_no_loop():
    sequence = markers(" ".join([PLAIN] * 120), start_ns=10 * SECOND)
    others = [
        (10 * SECOND + at * MS, kind, 3, layout.pack_gpu_time(at, None, False))
        for at, kind in enumerate((layout.GPU_TIME, layout.GPU_ANCHOR, layout.TORCH_MEMORY, 98, 99), start=100)
    ]
    _, plain = follow(sequence, 12 * SECOND)
    follower, same = follow(sorted(sequence + others), 12 * SECOND)
    assert same == plain
    assert not any(isinstance(record, GpuTime) for record in follower.last(12 * SECOND))


def test_a_ready_count_is_no_number_of_an_event():
    sequence = [
        (time_ns, kind, 200 if kind == layout.FETCH_BEGIN else flag, value)
        for time_ns, kind, flag, value in markers(" ".join([PLAIN] * 100), start_ns=10 * SECOND)
    ]
    follower, _ = follow(sequence, 12 * SECOND)
    assert follower._gpu._thread is None
