"""The parts of timed steps in which ranks exchange gradients: from the last backward pass to the update."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tuimon.agent.ring import layout
from tuimon.records import GpuAccumulation, GpuExchange
from tuimon.sources.gpu_clock.timed_steps import TimedBoundary, TimedStep

#: The first steps of each second on the clock are kept: ranks are compared by steps that all of them have. 8 steps of
#: 35 bytes are 1 MB in an hour.
_A_SECOND = 8
#: With three passes, the second has neither the first one's new gradients nor the last one's exchange.
_PASSES = 3


class _Pass(NamedTuple):
    """A backward pass: its begin and end, and where its gradients are used."""

    begin: TimedBoundary
    end: TimedBoundary
    update: TimedBoundary


class Exchanges:
    """Feed it timed steps in order."""

    def __init__(self) -> None:
        self.found: list[GpuExchange] = []
        self._steps = self._own_ns = self._last_ns = 0
        self._second = (0, 0)  # of the latest, and how many it has

    @property
    def accumulation(self) -> GpuAccumulation | None:
        """Sums over steps that accumulate gradients; None without any."""
        return GpuAccumulation(self._steps, self._own_ns, self._last_ns) if self._steps else None

    def add_step(self, step: TimedStep) -> None:
        """Count a step whose times are known."""
        passes = list(_passes(step))
        if not passes:
            return
        last = passes[-1]
        reached_ns = last.update.event.reached_ns if last.update.event is not None else None
        if reached_ns is not None:
            parts_ns = (_span_ns(*pair) for pair in pairwise(last))
            self._keep(GpuExchange(round(reached_ns / 1e9, 6), _forward_ns(step), *parts_ns))
        if len(passes) >= _PASSES:
            between = [_span_ns(found.begin, found.end) for found in passes[1:-1]]
            self._steps += 1
            self._own_ns += sum(between) // len(between)
            self._last_ns += _span_ns(last.begin, last.end)

    def _keep(self, exchange: GpuExchange) -> None:
        second, count = self._second
        count = count + 1 if int(exchange.reached_s) == second else 1
        self._second = int(exchange.reached_s), count
        if count <= _A_SECOND:
            self.found.append(exchange)


def _passes(step: TimedStep) -> Iterator[_Pass]:
    boundaries = step.boundaries
    for at, (begin, end) in enumerate(pairwise(boundaries)):
        if (begin.kind, end.kind) == (layout.BACKWARD_BEGIN, layout.BACKWARD_END):
            after = boundaries[at + 2] if at + 2 < len(boundaries) else end
            yield _Pass(begin, end, after if after.kind == layout.OPTIMIZER_BEGIN else end)


def _forward_ns(step: TimedStep) -> int | None:
    """The forward pass; None where the step begins with backward: its forward pass lies in the step before."""
    if step.boundaries[0].kind == layout.BACKWARD_BEGIN:
        return None
    return sum(_span_ns(*pair) for pair in pairwise(step.boundaries[:-1]) if pair[1].kind == layout.BACKWARD_BEGIN)


def _span_ns(begin: TimedBoundary, end: TimedBoundary) -> int:
    if begin.event is None or end.event is None:
        return 0
    return max(0, end.event.gpu_ns - begin.event.gpu_ns)
