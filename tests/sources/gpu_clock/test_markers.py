"""Markers of the GPU clock beside the others: nothing else changes by them."""

from tests.sources.loop.loop_script import MS, markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, follow
from tuimon.agent.ring import layout
from tuimon.records import GpuTime


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
