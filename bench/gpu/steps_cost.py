"""What ``tuimon run`` costs steps on a GPU: ``bench.overhead`` for as many rounds as fit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from bench.gpu.rows import Keyed
from bench.overhead import CUDA_PROMISES, PLAIN, PLAIN_AGAIN, TUIMON, Say, Turns


def measure(block_s: float, limit_s: float, say: Say, loops: Sequence[str] = tuple(CUDA_PROMISES)) -> Iterator[Keyed]:
    """A row per loop, in each round anew."""
    taken = Turns(1, block_s)
    begin_s = last_s = time.monotonic()
    longest_s = 0.0
    while last_s - begin_s + longest_s <= limit_s:
        say(f"step times in turns of {block_s:g} s: {', '.join(loops)}")
        for loop in taken.round([PLAIN, PLAIN_AGAIN, TUIMON], loops):
            yield Keyed(loop, taken.row(loop, TUIMON))
        if taken.failed:
            return
        now_s = time.monotonic()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
