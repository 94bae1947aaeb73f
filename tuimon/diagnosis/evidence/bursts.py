"""Side work that comes every so many steps: a checkpoint, a report, an inspection of the gradients."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from tuimon.diagnosis.threshold import Threshold
from tuimon.records import bucket_length_ns
from tuimon.session.steps.totals import Totals

BURST = Threshold(
    3.0,
    "times the mean side work of a step that one step holds at least, where side work comes in bursts",
    "our choice: what comes every second step is hidden by a queue of two batches like what comes in each",
)
#: Bursts of this size and more hold at least this part of all side work: our choice, most of it.
_PART = 0.5


class Burst(Struct, frozen=True, gc=False):
    """How long the side work is that a step has now and then, in ms, and every how many steps one has it."""

    ms: float
    every: float


def bursts(totals: Totals) -> Burst | None:
    """The bursts of most of the side work; None where it is in most steps, or is not measured.

    Worked example: of 100 steps of 10 ms five take 210 ms, and the slowest of each second show 200 ms of side work.
    So many steps are longer than 110 ms: five. They hold all of the 1,000 ms of side work, and come every 20 steps.
    """
    steps = totals.histogram.total()
    usual_ms = totals.quantile_ms(0.5)
    if not steps or usual_ms is None or not totals.count:
        return None
    mean_ms = totals.phases.get("other", 0) / totals.count / 1e6
    for ms in sorted(_side_work_of(totals.slowest, usual_ms), reverse=True):
        if ms < BURST * mean_ms:
            break
        long = sum(n for bucket, n in totals.histogram.items() if bucket_length_ns(bucket) / 1e6 > usual_ms + ms / 2)
        if long and long * ms >= _PART * mean_ms * steps:
            return Burst(ms, steps / long)
    return None


def _side_work_of(slowest: Iterable[tuple[float, float]], usual_ms: float) -> list[float]:
    """Side work (ms) of steps whose excess it mostly explains; a step is its length and its side work in ns."""
    return [other_ns / 1e6 for total_ns, other_ns in slowest if other_ns > 0.5 * (total_ns - usual_ms * 1e6)]
