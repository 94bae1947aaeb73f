"""The state of a training that makes no steps, and goodput: the share of a run's wall time that went to its steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from tuimon.node_ids import own_id
from tuimon.records import NO_TORCH_YET, Place, Process
from tuimon.session.series import Span
from tuimon.session.session import ProcessView, Session
from tuimon.session.stacks.activity import WAITS, WorkBeside
from tuimon.session.stacks.set_up import AWAITS_PROCESSES, COMPILING, RUNS_MODEL
from tuimon.session.steps import StepStats
from tuimon.threshold import MOST

StateName = Literal["starting", "unseen", "waiting", "ended", "training", "step_open", "between_steps"]

#: The state shown for a program that goes on after its training loop.
OVER = "its training loop has ended"

#: Seconds without the end of a step after which the state is shown: our choice, so that slow loops do not flicker.
LONG_STEP_S = 3.0
#: ... and this many typical steps: our choice, as a single step of twice the usual length is not worth showing.
LONG_STEP_RATIO = 3.0

#: Seconds without any boundary after which the loop stands still, and findings about steps no longer describe the
#: present: our choice, longer than a pause that is shown, and a third of a hang.
STANDSTILL_S = 5.0
#: ... and this many times the longest step so far, up to a limit (s), for loops that have paused for as long before.
STANDSTILL_RATIO, STANDSTILL_LIMIT_S = 1.5, 10.0
#: Seconds without any step in the run from which processes that show none are named: our choice, longer than imports
#: and set-up usually take; a longer set-up is named as well, and the words leave that open.
_UNSEEN_S = 60.0
#: Work that a process may do for minutes before it trains.
_SETTING_UP = ("importing", "compiling")


class RunState(NamedTuple):
    """State of one process. While it trains, only the name is set; fields that were not measured are None."""

    name: StateName
    for_s: float | None = None
    doing: str | None = None  # "importing transformers", "preparing data"
    doing_for_s: float | None = None
    place: Place | None = None
    backwards: int | None = None  # backward passes so far of a step that has not ended


def run_state(session: Session) -> RunState:
    """State of the process in focus: until its first whole step it is starting, or waits for processes of its own.

    If tuimon attached to it, it may have begun long ago: its state is then that no step has been seen.
    """
    own = session.over("recent").focus
    pid, stats, sampled = own.pid, own.stats, own.stacks
    if stats.total or stats.open_backwards:
        return _in_steps(own)
    if own.phases:
        since_step_s = session.now_s - sampled.steps_end_s  # without markers samples have shown its loop
        if since_step_s < LONG_STEP_S:
            return RunState("training")
        return RunState("between_steps", since_step_s, place=own.place)
    for_s = session.now_s - session.start_s
    work = sampled.current_work
    name: StateName = "ended" if session.exit is not None else "unseen" if session.is_attached else "starting"
    if session.exit is None and session.threads[pid].is_stopped:
        return RunState(name, for_s, _stopped(pid), None, work.place if work is not None else None)
    known = session.processes()
    if session.exit is not None and not (work is not None and work.words.startswith("importing")):
        reasons = {each.markers_reason for each in known if each.markers or each.markers_reason is not None}
        if reasons == {NO_TORCH_YET}:  # hooks waited in every Python process
            return RunState(name, for_s, "this program never imported torch; nothing was measured")
    if work is None:
        return RunState(name, for_s, _without_python(session, for_s))
    work_s = session.now_s - work.since_s
    if session.exit is None and work.words == AWAITS_PROCESSES:
        others = (session.threads[each.pid].latest for each in known if each.pid != pid and not each.ended)
        cores = sum(threads.cpu_ratio or 0.0 for threads in others if threads is not None)
        return RunState("waiting", work_s, f"they compute on {cores:.1f} cores" if cores >= MOST else None)
    return RunState(name, for_s, work.words, work_s, work.place)


def _stopped(pid: int) -> str:
    return f"stopped by a signal (kill -CONT {own_id(pid)} lets it go on)"


def stands_still(session: Session) -> bool:
    """True if the process in focus makes no step and has come to no boundary for long; an evaluation has boundaries."""
    state, stats = run_state(session), session.step_stats[session.trainer()]
    if state.name not in ("step_open", "between_steps") or session.exit is not None:
        return False
    if stats.latest is None:
        return (state.for_s or 0.0) >= STANDSTILL_S
    if not stats.total:
        return False
    return (state.doing_for_s or 0.0) >= standstill_after_s(stats)


def standstill_after_s(stats: StepStats) -> float:
    """The seconds without a boundary from which a loop with such steps stands still."""
    longest_s = (stats.over().quantile_ms(1.0) or 0.0) / 1e3
    return max(STANDSTILL_S, min(STANDSTILL_RATIO * longest_s, STANDSTILL_LIMIT_S))


def ended_before_torch(session: Session) -> bool:
    """True if the run has ended, and neither a step was seen in it nor a process that has imported torch."""
    if session.exit is None or any(process.torch is not None for process in session.processes()):
        return False
    return run_state(session).name == "ended"


def _without_python(session: Session, for_s: float) -> str | None:
    """The words for a run in which no Python process was seen, once a script has had time to start one.

    A Python process that a script starts is never seen if it ends between two reads.
    """
    known = session.processes()
    if not known or any(process.python is not None or process.markers_reason is not None for process in known):
        return None
    if session.exit is not None:
        return "no Python process was seen; only CPU and GPU were measured"
    return "no Python process so far: only CPU and GPU are measured" if for_s >= STANDSTILL_S else None


def _in_steps(own: ProcessView) -> RunState:
    session, stats, sampled = own.view.session, own.stats, own.stacks
    latest, median_ms = stats.latest, stats.over().quantile_ms(0.5)
    if latest is None or stats.open_since_s is None:
        return RunState("training")
    if stats.total and latest.open_for_s is None and not stats.has_left_loop:
        return RunState("training")
    for_s, open_for_s = latest.t - stats.open_since_s, latest.open_for_s or 0.0
    if stats.total and for_s < max(LONG_STEP_S, LONG_STEP_RATIO * (median_ms or 0.0) / 1e3):
        return RunState("training")
    if stats.has_left_loop:
        return RunState("between_steps", for_s, OVER, for_s)
    phase = latest.open_phase if latest.open_phase != "between" else None
    doing, doing_for_s = f"in {phase}" if phase is not None else None, latest.open_for_s
    # a window of samples may have begun before the phase: if that has lasted, wait for a window within it
    since_s = latest.t - open_for_s if open_for_s >= LONG_STEP_S else -math.inf
    place = sampled.threads.place_of(own.tid, phase, since_s)
    compiling_since_s = sampled.spent.compiling_since_s
    if compiling_since_s is not None and -math.inf < since_s < sampled.spent.end_s:
        doing, doing_for_s = COMPILING, min(for_s, session.now_s - compiling_since_s)
        place = place or own.place
    past = session.standstills.since(latest.t - open_for_s)
    if past is not None and any(each.pid == own.pid and each.has_left for each in past.taken.processes):
        doing = OVER  # it has left every loop that it trained in: it serves, or waits for somebody
    if session.threads[own.pid].is_stopped:
        doing = ", ".join(filter(None, (_stopped(own.pid), doing)))
    if stats.open_backwards:
        return RunState("step_open", for_s, doing, doing_for_s, place, stats.open_backwards)
    return RunState("between_steps", for_s, doing, doing_for_s, place)


# -- processes that work like a training but show no step


class Unseen(Struct, frozen=True, gc=False):
    """A process that works like a training but shows no step."""

    pid: int
    command: str
    cores: float | None  # cores that it used in its latest window
    on_gpu: bool
    reason: str  # why tuimon sees no step of it, and what would change that


def unseen_trainings(session: Session) -> list[Unseen]:
    """Processes that work but show no step, busiest first; none in the first minute, or if any process makes steps."""
    if session.now_s - session.start_s < _UNSEEN_S:
        return []
    known, now = session.processes(), session.over("recent")
    if any(now.of(process.pid).totals.steps for process in known):  # so it is nearly always, and takes no time
        return []
    if any(now.of(process.pid).phases for process in known):
        return []
    on_gpu = {pid for row in now.gpus() for pid in row.latest.pids}
    waits = run_state(session).name == "waiting"
    found = []
    for process in known:
        threads, work = session.threads[process.pid].latest, session.stacks[process.pid].current_work
        cores = threads.cpu_ratio if threads is not None else None
        words, is_on_gpu = work.words if work is not None else "", process.pid in on_gpu
        works = is_on_gpu or words == RUNS_MODEL or (cores is not None and cores >= MOST)
        if works and not words.startswith(_SETTING_UP) and (waits or not process.serves):
            found.append(Unseen(process.pid, " ".join(process.command), cores, is_on_gpu, _reason(process)))
    return sorted(found, key=lambda each: -(each.cores or 0.0))


def _reason(process: Process) -> str:
    if process.markers or process.serves:  # the hooks of a worker keep still until it trains
        return (
            "torch ran no backward or optimizer step from Python; tuimon.step() at the end of each step makes such a"
            " loop visible"
        )
    if process.python is None and process.markers_reason is None:
        return "it is not a Python program, so nothing can mark its steps; its threads and GPU are shown"
    reason = process.markers_reason or "no markers come from it"
    return f"{reason}; nothing marks its steps, and its stack samples show no training loop"


TimePart = Literal[
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
#: The parts in the order in which they are shown. ``restart``: the time of an earlier process of this rank, until the
#: one in focus started; or the time from an exec to the next step. ``network``: calls to other machines before and
#: after the loop. ``program``: waits for other programs before and after the loop, such as an installation. ``prompt``:
#: waits for input at a debugger or a console. ``hang``: standstills whose stacks were taken, or a wait for a batch that
#: lasted to the end of the run. ``outside``: the time between two cells of a notebook. ``after``: the time since the
#: last step.
PARTS: tuple[TimePart, ...] = get_args(TimePart)
#: A thread in a loop that stands still waits for a batch, a thread, a process or a rank.
_WAITS = WAITS - {"sleep", "sync", "prompt"}
#: The parts of the time before the loop that samples show.
_BEFORE: tuple[WorkBeside, ...] = get_args(WorkBeside)


class Goodput(Struct, frozen=True, gc=False):
    """Seconds of one process's wall time by part, exclusive: they add up to ``total_s``."""

    total_s: float
    parts: Mapping[TimePart, float]  # those that took any time
    loop: Mapping[TimePart, float] = {}  # of these, what lies between the first step and the last


def _divided(seconds: float, taken: Mapping[TimePart, float], rest: TimePart) -> dict[TimePart, float]:
    """Seconds divided among parts in turn: each takes at most what is left; ``rest`` gets the remainder."""
    left_s, parts = max(0.0, seconds), defaultdict[TimePart, float](float)
    for part, part_s in taken.items():
        parts[part] += min(left_s, max(0.0, part_s))
        left_s -= min(left_s, max(0.0, part_s))
    parts[rest] += left_s
    return parts


def goodput(session: Session) -> Goodput | None:
    """The wall time of the process in focus, from the start of the run, divided into parts; None at its very start."""
    own, now_s = session.over("whole").focus, session.now_s
    if not own.pid or now_s <= session.start_s:
        return None
    stats, spent = own.stats, own.stacks.spent
    process, header = session.process(own.pid), session.header
    begun_s = header.moment_s(process.start_unix_s) if header is not None and process is not None else None
    started_s = session.start_s
    before = [one for each in session.trainers() if each != own.pid and (one := session.process(each)) is not None]
    rank = process.rank if process is not None else None
    if begun_s is not None and any(one.ended and one.rank == rank and one.t <= begun_s for one in before):
        started_s = min(now_s, max(started_s, begun_s))
    divided = [_divided(started_s - session.start_s, {}, "restart")]
    begin_s = max(started_s, stats.begin_s) if stats.begin_s is not None else now_s
    # how the process that started this one, such as a job's script, spent the time until then
    launcher = session.launcher_of(process) if process is not None else 0
    own_s = max(started_s, min(begin_s, begun_s)) if launcher in session.stacks and begun_s is not None else started_s
    for work, since_s, until_s in ((session.stacks[launcher].spent, started_s, own_s), (spent, own_s, begin_s)):
        known = work.before(since_s)
        divided.append(_divided(until_s - since_s, {each: known[each] for each in _BEFORE}, "set-up"))
    loop: Mapping[TimePart, float] = {}
    if stats.begin_s is not None:
        last_s = max(begin_s, stats.last_step_s or begin_s)
        loop = _divided(last_s - begin_s, _in_loop(own, Span(begin_s, last_s)), "training")
        after: dict[TimePart, float] = {
            "checkpoint": spent.since_step["checkpoint"],
            "prompt": spent.since_step["prompt"],
            "evaluation": stats.since_step().eval_ns / 1e9,
            "outside": stats.since_step().outside_s,
        }
        rest = _tail(session)
        if rest == "after":  # in the loop they are part of a step
            after |= {"network": spent.since_step["network"], "program": spent.since_step["program"]}
            awaited_s = spent.since_step["first batch"]  # in a fetch that has brought none
            stood_s = max(awaited_s, _waited_s(own))
            after |= {"hang": stood_s if stood_s >= standstill_after_s(stats) else 0.0}
        divided += [loop, _divided(now_s - last_s, after, rest)]
    parts = ((part, sum(each.get(part, 0.0) for each in divided)) for part in PARTS)
    return Goodput(now_s - session.start_s, {part: took_s for part, took_s in parts if took_s}, loop)


def _in_loop(own: ProcessView, loop: Span) -> dict[TimePart, float]:
    """The parts of the time from the first step to the last that are not training, the certain ones first."""
    stats, spent, sums = own.stats, own.stacks.spent, own.stats.in_loop()
    hangs = [(past.since_s, past.ended_s) for past in own.view.session.standstills.past if past.ended_s is not None]
    evaluated_s = sums.eval_ns / 1e9
    if not (evaluated_s or stats.since_step().eval_ns):  # samples show it, without a DataLoader
        evaluated_s = own.phases.share_of("eval") * (loop.end_s - loop.begin_s)
    return {
        "restart": stats.restarted_s,
        "outside": sums.outside_s,
        "hang": sum(max(0.0, min(end_s, loop.end_s) - max(since_s, loop.begin_s)) for since_s, end_s in hangs),
        "first batch": stats.first_batch_s,
        "compile": spent.in_loop["compile"],
        "checkpoint": spent.in_loop["checkpoint"],
        "prompt": spent.in_loop["prompt"],
        "evaluation": evaluated_s,
    }


def _waited_s(own: ProcessView) -> float:
    """How long the training thread has waited at one line inside its loop since the latest step, the longest time."""
    node, stood_s = own.stacks.threads.stood(own.tid)
    if node is None or node.activity not in _WAITS:
        return 0.0
    loops = {frame.code for noted in own.stacks.noted_loops() for frame in noted.frames if frame.loop}
    return stood_s if any(frame.loop and frame.code in loops for frame in node.frames) else 0.0


def _tail(session: Session) -> TimePart:
    """The part that the time since the last step belongs to."""
    state, standstills = run_state(session), session.standstills
    last = standstills.past[-1] if standstills.past else None
    if last is not None and last.ended_s is None and (standstills.moved_s or 0.0) < last.since_s:
        has_left = any(each.has_left for each in last.taken.processes)
        return "after" if has_left else "hang"
    if session.exit is not None or (state.doing is not None and OVER in state.doing):
        return "after"
    return "evaluation" if state.name == "between_steps" and state.doing == "in eval" else "training"
