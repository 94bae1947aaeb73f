"""Literal records for tests: a run in a few calls."""

from msgspec import Struct

from tuimon.diagnosis.judging import diagnose, unjudged
from tuimon.records import (
    Frame,
    Frames,
    Header,
    Native,
    NativeCode,
    PhaseTime,
    Process,
    SlowStep,
    StackCount,
    Stacks,
    Steps,
    ThreadCpu,
    Threads,
    length_bucket,
)
from tuimon.session.session import Session
from tuimon.session.steps import StepStats

MS = 1_000_000


def header(pid=100, cpu_count=2, t=0.0):
    return Header(
        t=t,
        pid=pid,
        mode="run",
        command=["python", "train.py"],
        host="here",
        wall_unix_s=1.7e9,
        interval_s=1.0,
        cpu_count=cpu_count,
        versions={"tuimon": "0"},
    )


def process(pid=100, role="trainer", ppid=1, **more):
    facts = {"start_unix_s": 1.7e9, "command": ["python", "train.py"], "markers": True, "torch": "2.13.0+cpu"}
    facts["t"] = 0.0
    return Process(pid=pid, ppid=ppid, role=role, **(facts | more))


def steps(t, phases, count=10, pid=100, first_index=0, slowest_ms=None, timed=None, **more):
    """One window of ``count`` like steps; ``phases`` in ms per step; ``timed``: boundary by boundary, None: all."""
    total_ms = sum(ms for name, ms in phases.items() if name != "eval")
    facts = {"window_s": 1.0, "backwards": count, "updates": count}
    timed = count if timed is None else timed
    return Steps(
        t=t,
        pid=pid,
        count=count,
        first_index=first_index,
        total_ns=int(count * total_ms * MS),
        histogram=[(length_bucket(int(total_ms * MS)), timed)] if timed else [],
        phases=[PhaseTime(name, int(ms * count * MS)) for name, ms in phases.items()],
        slowest=SlowStep(first_index, int((slowest_ms or total_ms) * MS), []) if count else None,
        **(facts | more),
    )


def still(t, for_s, phase="between", **more):
    """A window in which no step has ended: the one that is open has been in a phase for so long."""
    return steps(t, {}, **{"count": 0, "open_phase": phase, "open_for_s": for_s} | more)


def frames(*places, first=0, t=0.0):
    """Frames from ``(file, line, function)`` or with ``(…, source, user)``, or as they are."""
    made = [place if isinstance(place, Frame) else Frame(*place) for place in places]
    return Frames(t=t, pid=100, first=first, frames=made)


def stacks(t, *counted, pid=100, tid=None, beside=(), **more):
    """Samples of one thread, as ``([frame ids], count)``; ``beside``: of others, as ``(tid, name, ids, count)``."""
    rows = [StackCount(tid or pid, "MainThread", list(ids), n) for ids, n in counted]
    rows += [StackCount(*row) for row in beside]
    facts = {"window_s": 1.0, "samples": sum(n for _, n in counted)}
    return Stacks(t=t, pid=pid, stacks=rows, **facts | more)


def threads(t, *rows, pid=100, **more):
    """A window of threads: ``(tid, name, cpu_ratio, state)``."""
    facts = {"window_s": 1.0, "cpu_ratio": 1.0, "rss_bytes": 1 << 28}
    return Threads(t=t, pid=pid, threads=[ThreadCpu(*row) for row in rows], **facts | more)


def thread(t, cpu, delay=None, pid=100, state="running", name="python", **more):
    """A window of a process of one thread: its CPU, and its wait for a core."""
    return threads(t, (pid, name, cpu, state, delay), pid=pid, cpu_ratio=cpu, **more)


def native(t, *rows, pid=100, window_s=4.0, **more):
    """Samples below Python; ``rows``: ``(tid, (library, phase, samples), ...)``."""
    code = [NativeCode(tid, *each) for tid, *found in rows for each in found]
    return Native(t=t, pid=pid, window_s=window_s, code=code, **more)


def rank(number, pid=None, of=2, after_s=0.0, **more):
    """The process of a rank as the launcher, process 50, starts it; ``after_s``: so long after the first."""
    facts = {"rank": number, "world_size": of, "ppid": 50, "python": "3.11.7", "start_unix_s": 1.7e9 + after_s}
    return process(100 + number if pid is None else pid, **facts | more)


def counted(places, samples):
    """Stacks as ``stacks`` takes them, of places by name: ``{"main, forward": 3}``."""
    numbers = {name: number for number, name in enumerate(places)}
    return [([numbers[name] for name in stack.split(", ")], n) for stack, n in samples.items()]


def totals_of(*windows):
    """What windows of steps come to."""
    stats = StepStats()
    for window in windows:
        stats.add_window(window)
    return stats.since_start()


def extend(session, *records):
    """The session, with these records folded, or lists of them."""
    for record in records:
        if isinstance(record, Struct):
            session.add(record)
        else:
            extend(session, *record)
    return session


def session_of(*records):
    """A session with these records folded, or lists of them."""
    return extend(Session(), *records)


def reason_by_rule(session):
    """The rules that could not judge it."""
    return {each.rule: each.reason for each in unjudged(session)}


def one_process(*records, **facts):
    """A session of one training process, and of what else was recorded; ``facts``: of the process."""
    return session_of(header(), process(**facts), *records)


def loop(ends, phases, *sampled, **more):
    """A loop: windows of like steps that end at these seconds, or at 1, 2, ... ``ends``, with their samples if any.

    ``sampled``: see ``stacks``; ``more``: see ``steps``.
    """
    count, pid = more.get("count", 10), more.get("pid", 100)
    seconds = range(1, ends + 1) if isinstance(ends, int) else ends
    made = [steps(t, phases, **{"first_index": int(count * (t - 1))} | more) for t in seconds]
    return [(each, stacks(each.t, *sampled, pid=pid)) for each in made] if sampled else made


def by_rule(session):
    """The findings on a session by their rule, the most important first."""
    return {finding.rule: finding for finding in diagnose(session)}


def hot_lines(view, pid, phase=None):
    """The innermost user lines of a process's training thread in a phase (None: in all)."""
    return view.of(pid).samples.without_imports.where(phase=phase).lines()


def total_of(line):
    """Of how many samples the share of a line is."""
    return round(line.samples / line.share)
