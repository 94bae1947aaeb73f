"""Which steps of a window are kept one by one, so that ranks can be compared step by step."""

from __future__ import annotations

from collections.abc import Iterator

from tuimon.records import BETWEEN, RankStep
from tuimon.sources.loop.step import Step
from tuimon.sources.markers.window_steps import WindowSteps
from tuimon.sources.window_lengths import stride_of

#: Most steps of an interval that are kept: about 45 bytes of log each; in half a minute 60 to 120 of a fast loop.
_MOST = 4
_PHASES = ("data", "forward", "backward", "optimizer", "other", BETWEEN)


def rank_steps(steps: WindowSteps, end_ns: int, intervals: int = 1) -> list[RankStep]:
    """Steps whose number is a multiple of a power of two: other ranks, which make as many, choose the same.

    ``intervals``: the steps are of so many; the windows of other ranks may be shorter.
    """
    stride = stride_of(steps.count, _MOST * intervals)
    return [_rank_step(index, step, end_ns) for index, step in steps.every(stride) if step.usual and step.timed]


def _rank_step(index: int, step: Step, end_ns: int) -> RankStep:
    return RankStep(index, max(0, end_ns - step.end_ns) // 1000, *_parts_us(step))


def _parts_us(step: Step) -> Iterator[int]:
    return (max(0, step.phases.get(name, 0)) // 1000 for name in _PHASES)
