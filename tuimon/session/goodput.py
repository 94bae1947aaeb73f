"""Goodput: the share of a run's wall time that went to training steps, and what took the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import Struct

from tuimon.session.series import Span
from tuimon.session.session import Session
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.set_up import Spent
from tuimon.session.state import OVER, run_state, still_from_s
from tuimon.session.steps import StepStats

Part = Literal[
    "training",
    "restart",
    "import",
    "set-up",
    "first batch",
    "compile",
    "evaluation",
    "checkpoint",
    "network",
    "program",
    "prompt",
    "hang",
    "outside",
    "after",
]
#: In the order in which they are shown. ``restart``: until the process in focus started, where an earlier one of its
#: rank had trained; ``outside``: a notebook between its cells; ``after``: since the last step; ``hang``: standstills
#: whose stacks were taken, and the wait for a batch that had not come when the run ended;
#: ``network`` and ``program``: the calls to other machines before and after the loop, and the waits there for other
#: programs such as an installation; ``prompt``: somebody at a debugger or a console.
PARTS: tuple[Part, ...] = get_args(Part)
#: A thread in a loop that stands still waits for a batch, a thread, a process or a rank.
_WAITS: tuple[Activity, ...] = ("data", "idle", "io", "lock", "ranks")
#: The parts of the time before the loop that samples show.
_BEFORE: tuple[Part, ...] = ("import", "compile", "checkpoint", "network", "program", "prompt", "first batch")


class Goodput(Struct, frozen=True, gc=False):
    """Seconds of one process's wall time by part, exclusive: they add up to ``total_s``."""

    total_s: float
    parts: Mapping[Part, float]  # those that took any time
    loop: Mapping[Part, float] = {}  # of these, what lies between the first step and the last

    @property
    def ratio(self) -> float:
        """Share (0..1) of the time in steps."""
        return self.parts.get("training", 0.0) / self.total_s


class _Divided:
    """Divides stretches of time: a part takes at most what the parts before it have left of its stretch."""

    def __init__(self) -> None:
        self.parts: dict[Part, float] = dict.fromkeys(PARTS, 0.0)

    def add(self, seconds: float, taken: Mapping[Part, float], rest: Part) -> dict[Part, float]:
        """Add a stretch of so many seconds, of which these parts are known; the rest is one part. As it is divided."""
        left_s, parts = max(0.0, seconds), defaultdict[Part, float](float)
        for part, seconds_of_it in taken.items():
            part_s = min(left_s, max(0.0, seconds_of_it))
            parts[part] += part_s
            left_s -= part_s
        parts[rest] += left_s
        for part, part_s in parts.items():
            self.parts[part] += part_s
        return dict(parts)


def goodput(session: Session) -> Goodput | None:
    """The division of the wall time of the process in focus, from the start of the run; None before any of it."""
    pid, now_s = session.trainer(), session.now_s
    if pid is None or session.start_s is None or now_s <= session.start_s:
        return None
    stats, sampled = session.step_stats.get(pid), session.stacks.get(pid)
    process, header = session.process(pid), session.header
    spent = sampled.spent if sampled is not None else Spent()
    begun_s = header.moment_s(process.start_unix_s) if header is not None and process is not None else None
    started_s = session.start_s
    before = [one for each in session.trainers() if each != pid and (one := session.process(each)) is not None]
    rank = process.rank if process is not None else None
    if begun_s is not None and any(one.ended and one.rank == rank and one.t <= begun_s for one in before):
        started_s = min(now_s, max(started_s, begun_s))
    divided = _Divided()
    divided.add(started_s - session.start_s, {}, "restart")
    begin_s = max(started_s, stats.begin_s) if stats is not None and stats.begin_s is not None else now_s
    # how the process that started this one, such as a job's script, spent the time until then
    launcher = session.stacks.get(session.launcher_of(process) or 0) if process is not None else None
    own_s = started_s
    if launcher is not None and begun_s is not None:
        own_s = max(started_s, min(begin_s, begun_s))
    for work, since_s, until_s in (
        (launcher.spent if launcher is not None else None, started_s, own_s),
        (spent, own_s, begin_s),
    ):
        known = work.before(since_s) if work is not None else Counter()
        divided.add(until_s - since_s, {each: known[each] for each in _BEFORE}, "set-up")
    loop: Mapping[Part, float] = {}
    if stats is not None and stats.begin_s is not None:
        last_s = max(begin_s, stats.last_step_s or begin_s)
        loop = divided.add(last_s - begin_s, _in_loop(session, stats, spent, Span(begin_s, last_s)), "training")
        after: dict[Part, float] = {
            "checkpoint": spent.since_step["checkpoint"],
            "prompt": spent.since_step["prompt"],
            "evaluation": stats.since_step().eval_ns / 1e9,
            "outside": stats.since_step().outside_s,
        }
        rest = _tail(session)
        if rest == "after":  # in the loop they are part of a step
            after |= {"network": spent.since_step["network"], "program": spent.since_step["program"]}
            awaited_s = spent.since_step["first batch"]  # in a fetch that has brought none
            stood_s = max(awaited_s, _waited_s(session, stats))
            after |= {"hang": stood_s if stood_s >= still_from_s(stats) else 0.0}
        divided.add(now_s - last_s, after, rest)
    parts = {part: took_s for part, took_s in divided.parts.items() if took_s}
    return Goodput(now_s - session.start_s, parts, loop)


def _in_loop(session: Session, stats: StepStats, spent: Spent, loop: Span) -> dict[Part, float]:
    """The parts of the time from the first step to the last that are no training, those that are sure first."""
    sums = stats.in_loop()
    hangs = [(past.since_s, past.ended_s) for past in session.standstills.past if past.ended_s is not None]
    evaluated_s, table = sums.eval_ns / 1e9, session.over("whole").phases(stats.pid)
    if not (evaluated_s or stats.since_step().eval_ns) and table is not None:  # samples show it, without a DataLoader
        share = next((row.share for row in table.rows if row.name == "eval"), 0.0)
        evaluated_s = share * (loop.end_s - loop.begin_s)
    return {
        "outside": sums.outside_s,
        "hang": sum(max(0.0, min(end_s, loop.end_s) - max(since_s, loop.begin_s)) for since_s, end_s in hangs),
        "first batch": stats.first_batch_s,
        "compile": spent.in_loop["compile"],
        "checkpoint": spent.in_loop["checkpoint"],
        "prompt": spent.in_loop["prompt"],
        "evaluation": evaluated_s,
    }


def _waited_s(session: Session, stats: StepStats) -> float:
    """How long the thread that trains had waited at one line inside its loop when it was sampled last."""
    sampled = session.stacks.get(stats.pid)
    stack = sampled.threads.stack_of(sampled.tid) if sampled is not None else None
    if sampled is None or stack is None or stack[0].activity not in _WAITS:
        return 0.0
    loops = {frame.code for noted in sampled.noted_loops() for frame in noted.frames if frame.loop}
    if not any(frame.loop and frame.code in loops for frame in stack[0].frames):
        return 0.0
    return sampled.threads.same_stack_s(sampled.tid) or 0.0


def _tail(session: Session) -> Part:
    """The part that the time since the last step belongs to."""
    state, standstills = run_state(session), session.standstills
    last = standstills.past[-1] if standstills.past else None
    if last is not None and last.ended_s is None and (standstills.moved_s or 0.0) < last.since_s:
        has_left = any(each.has_left for each in last.taken.processes)
        return "after" if has_left else "hang"
    if session.exit is not None or (state.doing is not None and OVER in state.doing):
        return "after"
    return "evaluation" if state.name == "between_steps" and state.doing == "in eval" else "training"
