"""Markers of the GPU clock beside the others: nothing else changes by them."""

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, follow
from tests.sources.markers.test_loaders import FACTS, LoaderScript
from tuimon.agent.ring import layout
from tuimon.records import GpuTime


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
    follower, records = follow(sequence, 12 * SECOND)
    assert not any(isinstance(record, GpuTime) for record in (*records, *follower.last(12 * SECOND)))
