"""Goodput: how much of a run's wall time trains, and what the rest goes to."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.session.session import Session
from tuimon.session.state import OVER, run_state
from tuimon.session.steps.steps import StepStats
from tuimon.session.windows import Span


class Goodput(NamedTuple):
    """Seconds by what they went to: each second is in one of these, and they add up to the wall time.

    - ``start``: until the loop begins: imports, data, the model; none after attaching, which sees nothing of it.
    - ``compiling``: torch.compile's work, as it notes it itself.
    - ``evaluation``: batches without a backward.
    - ``checkpoints``: as much of the time outside the phases as samples show in saving.
    - ``outside``: between two cells of a notebook, or two loops.
    - ``after``: since the last step of a training that is over.
    - ``training``: all the rest, waits for data included.
    """

    training: float
    start: float
    compiling: float
    evaluation: float
    checkpoints: float
    outside: float
    after: float

    @property
    def wall_s(self) -> float:
        """All of it."""
        return sum(self)


def goodput(session: Session, pid: int) -> Goodput | None:
    """Of the run so far; None where no markers have shown a step of the process."""
    stats = session.step_stats.get(pid)
    if stats is None or stats.begin_s is None or stats.last_step_s is None or session.header is None:
        return None
    end_s = session.exit.t if session.exit is not None else session.now_s
    began_s = session.start_s if session.header.mode == "run" else None
    left_s = max(0.0, end_s - stats.begin_s)

    def part(seconds: float) -> float:
        nonlocal left_s
        taken_s = min(max(0.0, seconds), left_s)
        left_s -= taken_s
        return taken_s

    is_over = session.exit is not None or run_state(session).doing == OVER
    phases = stats.since_start().phases
    compiled = session.over("whole").compiler_events(pid, "compiled", "recompiled", "backward")
    parts = {
        "outside": part(stats.outside_s),
        "evaluation": part(phases["eval"] / 1e9),
        "after": part(end_s - stats.last_step_s - stats.apart_since_step_s) if is_over else 0.0,
        "compiling": part(sum(event.total_ns for event in compiled) / 1e9),
        "checkpoints": part(_saving(session, pid, stats) * phases["other"] / 1e9),
    }
    start_s = max(0.0, stats.begin_s - began_s) if began_s is not None else 0.0
    return Goodput(training=left_s, start=start_s, **parts)


def _saving(session: Session, pid: int, stats: StepStats) -> float:
    """The part (0..1) of the time outside the phases in which samples show the saving of a model."""
    sampled = session.samples.get(pid)
    if sampled is None or stats.begin_s is None or stats.last_step_s is None:
        return 0.0
    beside = [
        each
        for each in sampled.over(Span(stats.begin_s, stats.last_step_s)).samples_of(sampled.tid)
        if each.phase == "other"
    ]
    total = sum(each.count for each in beside)
    return sum(each.count for each in beside if each.has("saves")) / total if total else 0.0
