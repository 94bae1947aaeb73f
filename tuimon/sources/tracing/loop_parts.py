"""The steps and phases of the traced time, from the markers of the thread that was traced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from tuimon.agent.ring.layout import BACKWARD_END, BOUNDARIES, GAP_END, Marker
from tuimon.sources.loop.machine import LoopMachine
from tuimon.trace.events import Stretch

#: Boundaries of both clocks are compared with this tolerance: the agent reads the clock once more for itself (ns).
_NEAR_NS = 200_000


def loop_parts(markers: Sequence[Marker], begin_ns: int, end_ns: int) -> tuple[list[Stretch], list[Stretch]]:
    """Steps and phases that lie between two moments of the monotonic clock."""
    within = [marker for marker in markers if marker.kind == BACKWARD_END and begin_ns <= marker.time_ns <= end_ns]
    threads = Counter(marker.tid for marker in within)
    if not threads:
        return [], []
    thread = threads.most_common(1)[0][0]
    machine = LoopMachine()
    ends: list[int] = []
    phases: list[Stretch] = []
    for marker in markers:
        if marker.kind == GAP_END:
            machine = LoopMachine()
            ends.clear()
        elif marker.tid == thread and marker.kind in BOUNDARIES:
            stretch = machine.feed_marker(marker)
            ends += [step.end_ns for step in machine.steps.take_ended().steps]
            if begin_ns - _NEAR_NS <= stretch.begin_ns and stretch.end_ns <= end_ns + _NEAR_NS:
                phases.append(Stretch(stretch.label, stretch.begin_ns, stretch.end_ns))
    steps = [
        Stretch("", before, after)
        for before, after in pairwise(sorted(set(ends)))
        if begin_ns - _NEAR_NS <= before and after <= end_ns + _NEAR_NS
    ]
    named = [step._replace(name=f"step {number}") for number, step in enumerate(steps, 1)]
    return named, _joined(phases)


def _joined(phases: Sequence[Stretch]) -> list[Stretch]:
    """Neighbours of one name as one."""
    found: list[Stretch] = []
    for phase in phases:
        if phase.end_ns <= phase.begin_ns:
            continue
        if found and found[-1].name == phase.name and found[-1].end_ns == phase.begin_ns:
            found[-1] = found[-1]._replace(end_ns=phase.end_ns)
        else:
            found.append(phase)
    return found
