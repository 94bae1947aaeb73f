"""What the monitor and its py-spy take from a training beside them, which is watched and left alone in turns.

The training keeps its hooks (``hooks_in_process`` measures those); the monitor is stopped and let go on. So the same
memory and model serve both, and the noise is far less than between two processes.
"""

from __future__ import annotations

from itertools import pairwise

from bench.overhead import HOOKS_PROMISES, SETTLE_S, TUIMON, Say, loop_text
from bench.table import Row, Spread
from bench.trainee import Trainee

#: From when on a run is sampled as for the rest of it.
WARM_UP_S = 40.0
LOOPS = ("0.3ms", "5ms", "10ms-loader")


def measure(turns: int, block_s: float, say: Say) -> list[Row]:
    """One row a loop: median step with the monitor at work against that with the monitor stopped."""
    rows: list[Row] = []
    for loop in LOOPS:
        say(f"{loop}: the monitor at work and stopped, {turns} turns of {2 * (SETTLE_S + block_s):.1f} s")
        training = Trainee(TUIMON)
        try:
            training.block(loop, WARM_UP_S)
            rows.append(_row(loop, _alone_and_watched(training, loop, turns, block_s)))
        finally:
            training.close()
    return rows


def _alone_and_watched(training: Trainee, loop: str, turns: int, block_s: float) -> tuple[list[float], list[float]]:
    """Median step times (ns) of the blocks without the monitor, and of those with it between them."""
    alone = [_median_ns(training, loop, block_s, watched=False)]
    watched: list[float] = []
    for _ in range(turns):
        watched.append(_median_ns(training, loop, block_s, watched=True))
        alone.append(_median_ns(training, loop, block_s, watched=False))
    return alone, watched


def _median_ns(training: Trainee, loop: str, block_s: float, *, watched: bool) -> float:
    (training.resume if watched else training.pause)()
    training.block(loop, SETTLE_S)
    return training.block(loop, block_s)


def _row(loop: str, blocks: tuple[list[float], list[float]]) -> Row:
    alone, watched = blocks
    around = [(before + after) / 2 for before, after in pairwise(alone)]
    noise = [2 * middle / (before + after) for before, middle, after in zip(alone, alone[1:], alone[2:], strict=False)]
    return Row(
        what=f"  the monitor beside it, in one process: {loop_text(loop, alone)}",
        promise=HOOKS_PROMISES[loop],
        measured=Spread.of([with_it / without for with_it, without in zip(watched, around, strict=True)]),
        noise=Spread.of(noise),
        unit="x",
    )
