"""Steps and phases of a trace: from tuimon's markers, or else by the names of torch's events."""

from __future__ import annotations

from tuimon.trace.events import Events, Kind, Stretch, Stretches
from tuimon.trace.reader import Trace

_FETCH = "enumerate(DataLoader)"
_OPTIMIZER = "Optimizer.step#"
_BACKWARD = ("autograd::engine::evaluate_function", "torch::autograd::")


def whole(trace: Trace) -> Stretch:
    """The time from the first step to the end of the last; without steps, all of the trace."""
    if trace.steps:
        return Stretch("steps", trace.steps.all[0].begin_ns, trace.steps.all[-1].end_ns)
    events = trace.events
    return Stretch("trace", min(events.begin_ns, default=0), max(events.end_ns, default=0))


def phases_of(trace: Trace) -> Stretches:
    """The phases of the steps; in another program's file fetches and optimizer steps are annotated."""
    if trace.phases:
        return trace.phases
    return Stretches([phase for step in trace.steps.all or [whole(trace)] for phase in _phases_in(trace.events, step)])


def _phases_in(events: Events, step: Stretch) -> list[Stretch]:
    fetches: list[Stretch] = []
    updates: list[Stretch] = []
    backward: list[int] = []  # begins and ends
    for i in events.begun_in(step):
        name = events.name_of(i)
        if events.kind[i] == Kind.ANNOTATION and name.startswith(_FETCH):
            fetches.append(Stretch("data", events.begin_ns[i], events.end_ns[i]))
        elif events.kind[i] == Kind.ANNOTATION and name.startswith(_OPTIMIZER):
            updates.append(Stretch("optimizer", events.begin_ns[i], events.end_ns[i]))
        elif events.kind[i] == Kind.OPERATOR and name.startswith(_BACKWARD):
            backward += (events.begin_ns[i], events.end_ns[i])
    known = fetches + updates
    if backward:
        known.append(Stretch("backward", min(backward), max(backward)))
    return _with_gaps(sorted(known, key=lambda each: each.begin_ns), step)


def _with_gaps(known: list[Stretch], step: Stretch) -> list[Stretch]:
    """Time before backward is forward, the rest other."""
    found: list[Stretch] = []
    at_ns = step.begin_ns
    has_backward = any(each.name == "backward" for each in known)
    for stretch in known:
        if stretch.begin_ns > at_ns:
            found.append(Stretch("forward" if stretch.name == "backward" else "other", at_ns, stretch.begin_ns))
        found.append(stretch)
        at_ns = max(at_ns, stretch.end_ns)
    if at_ns < step.end_ns:
        found.append(Stretch("other" if has_backward or known else "", at_ns, step.end_ns))
    return found
