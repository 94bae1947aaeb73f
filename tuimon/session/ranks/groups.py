"""Which processes are the ranks of one training: late ones, restarted ones, and several trainings in one run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tuimon.records import Process

#: Seconds within which a launcher starts the ranks of one machine: our choice, processes of a few ms each where others
#: keep the machine busy.
_ONE_START_S = 5.0


def ranks_of(focus: int, processes: Mapping[int, Process], training: Collection[int]) -> list[Process]:
    """The newest process of each rank of the training that ``focus`` belongs to, by rank; without a rank, none.

    ``training``: the processes whose markers show steps. A rank whose process has not come so far is among them once
    its launcher has started it. One that ended before all live ranks began belongs to an earlier start.
    """
    own = processes.get(focus)
    if own is None or own.rank is None:
        return []
    ranked = [process for process in processes.values() if _is_rank(process, processes, training)]
    newest = _newest(_of_one_training(own, ranked), training)
    begun_s = min((p.start_unix_s for p in newest if not p.ended), default=None)
    return [p for p in newest if begun_s is None or not p.ended or _outlived(p, begun_s, newest)]


def restarts(group: Iterable[Process], processes: Iterable[Process]) -> dict[int, int]:
    """How many processes of the group's launcher had each rank before, by rank."""
    newest = {(process.ppid, process.rank): process for process in group}
    counts: dict[int, int] = {}
    for process in processes:
        own = newest.get((process.ppid, process.rank))
        if own is not None and own.pid != process.pid and not process.serves and process.rank is not None:
            counts[process.rank] = counts.get(process.rank, 0) + 1
    return counts


def _is_rank(process: Process, processes: Mapping[int, Process], training: Collection[int]) -> bool:
    """True if it trains, or may come to: the outermost Python of its rank. Its children inherit RANK from it."""
    if process.rank is None or process.serves:
        return False
    if process.pid in training:
        return True
    parent = processes.get(process.ppid)
    inherited = parent is not None and parent.rank == process.rank and parent.python is not None
    return process.python is not None and not inherited


def _of_one_training(own: Process, ranked: Sequence[Process]) -> list[Process]:
    """The processes without those of another training: of other launchers, with the same ranks at the same time."""
    alike = [process for process in ranked if process.world_size in (own.world_size, None) or process.pid == own.pid]
    family: dict[int | None, list[Process]] = {}
    for process in alike:
        if process.ppid == own.ppid:
            family.setdefault(process.rank, []).append(process)
    rivals = {p.ppid for p in alike if p.ppid != own.ppid and any(_beside(p, q) for q in family.get(p.rank, ()))}
    return [process for process in alike if process.ppid not in rivals]


def _beside(one: Process, other: Process) -> bool:
    """True if both run, or were started at about the same time."""
    both_run = not one.ended and not other.ended
    return both_run or abs(one.start_unix_s - other.start_unix_s) <= _ONE_START_S


def _newest(alike: Iterable[Process], training: Collection[int]) -> list[Process]:
    """One process of each rank: the live one, of several the one that trains, the last that was started."""
    newest: dict[int, Process] = {}
    for process in sorted(alike, key=lambda p: (not p.ended, p.pid in training, p.start_unix_s)):
        if process.rank is not None:
            newest[process.rank] = process
    return [newest[rank] for rank in sorted(newest)]


def _outlived(ended: Process, begun_s: float, newest: Sequence[Process]) -> bool:
    """True if a process that has ended was started with the ranks that live: then it is lost, and no earlier start's.

    The launcher starts all ranks anew at once; those of one start begin within moments of one another.
    """
    latest_s = max(p.start_unix_s for p in newest if not p.ended)
    return ended.start_unix_s >= begun_s - max(_ONE_START_S, latest_s - begun_s)
