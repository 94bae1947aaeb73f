"""Workers that idle are not sampled for a while; those that make batches, or of several trainers, are."""

from __future__ import annotations

from collections import Counter

from tuimon.sources.stacks.frames.frame_ids import RawFrame
from tuimon.sources.stacks.pyspy.output import SampledThread, WindowSamples
from tuimon.sources.stacks.source import IdleWorkers

UTILS = "/lib/site-packages/torch/utils/data/_utils"
LOOP = RawFrame(f"{UTILS}/worker.py", 300, "_worker_loop")
IDLE = (LOOP, RawFrame("/lib/python3.11/multiprocessing/queues.py", 113, "Queue.get"))
WORKING = (LOOP, RawFrame(f"{UTILS}/fetch.py", 54, "_MapDatasetFetcher.fetch"), RawFrame("data.py", 9, "__getitem__"))


def window(idle: int, working: int) -> WindowSamples:
    stacks = Counter({IDLE: idle, WORKING: working})
    return WindowSamples([SampledThread(201, "MainThread", stacks)], idle + working)


def test_one_that_works_again_ends_their_rest() -> None:
    workers = IdleWorkers()
    workers.add_window(window(10, 0), 10.0)
    workers.add_window(window(0, 10), 11.0)
    assert workers.left((201,), (100,), 11.1) == (201,)
