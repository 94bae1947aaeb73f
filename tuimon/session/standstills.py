"""Standstills: the places of all ranks while nothing moved, and the group that holds the others up."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field, structs

from tuimon.bounds import MANY_HELD
from tuimon.node_ids import node_of, own_id
from tuimon.proc.numa import core_list
from tuimon.records import Collectives, Frame, Place, RankCollective, StandingProcess, Standstill, Steps
from tuimon.session.stacks.activity import Activity, outer_calls, standing_activity
from tuimon.session.stacks.trie import user_place
from tuimon.text import code_place, function_text, plain
from tuimon.torch_code import is_backward_entry, is_collective, is_fetch, is_loader_idle_loop

#: The state of a group. ``stopped``: by a signal or a debugger; ``ended``: it is gone; ``own``: by its own code, not by
#: waiting for others; ``helper``: waits for another thread; ``batch``: waits for its workers; ``ranks``: waits for
#: other ranks; ``thread``: a thread for which the training does not wait; ``idle``: waits for work.
StandingKind = Literal["stopped", "ended", "own", "unknown", "helper", "batch", "ranks", "thread", "idle"]
#: The order in which groups are listed.
_ORDER: tuple[StandingKind, ...] = ("stopped", "ended", "own", "unknown", "helper", "batch", "ranks", "thread", "idle")
#: The groups that no headline names.
BESIDE: tuple[StandingKind, ...] = ("thread", "idle")
#: The groups that wait for what their training makes.
_WAITS: dict[Activity, StandingKind] = {"data": "batch", "ranks": "ranks"}
#: Waits for another thread of the process.
FOR_THREAD: frozenset[Activity] = frozenset(("lock", "thread"))
#: Waits that may last for ever without a fault: for work, an event, a connection. A lock is not among them, since it
#: may be half of a deadlock.
FOR_WORK: frozenset[Activity] = frozenset(("idle", "sleep", "prompt", "thread", "message", "child", "connection"))
StandingRole = Literal["rank", "worker", "thread"]
#: The root of every thread's stack but the main one's.
THREAD_ROOT = "_bootstrap"


class StandingThreads(NamedTuple):
    """Threads at one place; a worker has the rank of its trainer."""

    kind: StandingKind
    role: StandingRole
    ranks: tuple[int, ...]  # of those whose rank is known, each once
    pids: tuple[int, ...]
    number: int  # threads; of processes without a stack, processes
    doing: str  # "open()", "all_reduce()", "backward()"; why it has no stack
    place: Place | None  # the innermost user line
    frames: tuple[Frame, ...]  # root first
    outer: int = 0  # frames left out at the root

    @property
    def own_pids(self) -> list[int]:
        """The processes, each once, by the pids that their nodes know."""
        return [own_id(pid) for pid in dict.fromkeys(self.pids)]


def standing_groups(record: Standstill) -> list[StandingThreads]:
    """All groups of a standstill: those that hold others up before those that wait, small ones before large."""
    processes = {process.pid: process for process in record.processes}
    training = training_threads(record)
    waited_for = _waited_for(record, training)
    alike: dict[tuple[tuple[Frame, ...], int], list[tuple[int, int]]] = {}  # nodes have groups of their own
    unlisted = Counter[tuple[tuple[Frame, ...], int]]()
    for group in record.groups:
        alike.setdefault((tuple(group.frames), group.outer), []).extend(group.threads)
        unlisted[tuple(group.frames), group.outer] += group.more
    found: list[StandingThreads] = []
    for (frames, outer), threads in alike.items():
        parts: dict[tuple[StandingRole, StandingKind], list[int]] = {}
        for pid, tid in threads:
            trains, awaited = tid == training.get(pid, pid), waited_for.get(pid, set())
            parts.setdefault(_role_and_kind(frames, tid, processes.get(pid), trains, awaited), []).append(pid)
        place, doing = user_place(frames), _doing(frames)
        for (role, kind), pids in parts.items():
            ranks = _ranks(processes[pid] for pid in pids if pid in processes)
            number = len(pids) + unlisted.pop((frames, outer), 0)
            found.append(StandingThreads(kind, role, ranks, tuple(pids), number, doing, place, frames, outer))
    found += _without_stacks(record.processes, {pid for each in found if each.role != "thread" for pid in each.pids})
    if not any(each.kind == "batch" for each in found):  # then workers only stand by
        spare = ("own", "unknown")
        found = [each._replace(kind="idle") if each.role == "worker" and each.kind in spare else each for each in found]
    return sorted(found, key=lambda each: (_ORDER.index(each.kind), each.number, each.ranks, each.pids))


def odd_one(groups: Sequence[StandingThreads]) -> StandingThreads | None:
    """The group that holds the others up; None if all stand at one place, or two of one size wait for each other."""
    ranks = [each for each in groups if each.kind not in BESIDE]
    if len(ranks) < 2:
        return None
    first, second = ranks[:2]
    if first.kind == second.kind == "ranks" and first.number == second.number:
        return None
    return first


def _waited_for(record: Standstill, training: Mapping[int, int]) -> dict[int, set[int]]:
    """The threads, by process, that its training may wait for: all but those that wait for work."""
    waiting, found = set[int](), dict[int, set[int]]()
    for group in record.groups:
        activity = standing_activity(group.frames)
        for pid, tid in group.threads:
            if tid != training.get(pid, pid) and activity not in FOR_WORK:
                found.setdefault(pid, set()).add(tid)
            elif tid == training.get(pid, pid) and activity in FOR_THREAD:
                waiting.add(pid)
    return {pid: tids for pid, tids in found.items() if pid in waiting}


def _role_and_kind(
    frames: Sequence[Frame], tid: int, process: StandingProcess | None, trains: bool, waited_for: Set[int]
) -> tuple[StandingRole, StandingKind]:
    """The role and the kind of a thread; ``waited_for``: the threads of its process that the training waits for."""
    activity = standing_activity(frames)
    kind: StandingKind = _WAITS.get(activity, "own")
    if not trains and tid not in waited_for:
        return "thread", "idle" if activity in FOR_WORK else "thread"
    if not trains:
        return "thread", "helper" if activity == "lock" else kind
    role: StandingRole = "worker" if process is not None and process.role == "worker" else "rank"
    if process is not None and process.state == "stopped":
        return role, "stopped"
    if role == "worker":
        return role, "idle" if user_place(frames) is None else "own"
    return role, "helper" if waited_for else kind


def _without_stacks(processes: Sequence[StandingProcess], seen: set[int]) -> Iterable[StandingThreads]:
    by_reason: dict[tuple[StandingKind, str, bool], list[StandingProcess]] = {}
    for each in processes:
        if each.pid not in seen:
            kind: StandingKind = (
                "stopped" if each.state == "stopped" else "ended" if each.state == "ended" else "unknown"
            )
            by_reason.setdefault((kind, each.unknown or "", each.role == "worker"), []).append(each)
    for (kind, reason, is_worker), rows in by_reason.items():
        pids = tuple(row.pid for row in rows)
        role: StandingRole = "worker" if is_worker else "rank"
        yield StandingThreads(kind, role, _ranks(rows), pids, len(rows), reason, None, ())


def _ranks(processes: Iterable[StandingProcess]) -> tuple[int, ...]:
    return tuple(sorted({each.rank for each in processes if each.rank is not None}))


def _doing(frames: Sequence[Frame]) -> str:
    """``all_reduce()``, ``backward()``, ``the DataLoader``; otherwise the call in the innermost user line."""
    if not frames:
        return "no Python code"
    for frame in reversed(frames):
        if frame.user:
            break
        if is_collective(frame.file, frame.function) and frame.function != "wrapper":
            return f"{frame.function}()"
        if is_backward_entry(frame.file, frame.function):
            return "backward()"
        if is_fetch(frame.file, frame.function) or is_loader_idle_loop(frame.file, frame.function):
            return "the DataLoader"
    frame = next((frame for frame in reversed(frames) if frame.user), frames[-1])
    calls = outer_calls(frame.source) if frame.user else []
    return function_text(calls[0] if len(calls) == 1 else frame.function)


def training_threads(taken: Standstill) -> dict[int, int]:
    """The thread that trains, by process, if it is not the main one."""
    return {process.pid: process.tid for process in taken.processes if process.tid is not None}


class OpenCollective(Struct, frozen=True, gc=False):
    """A collective that does not end; ranks in order."""

    group: str
    number: int
    name: str  # "all_reduce"
    waiting: tuple[int, ...]  # ranks in it
    missing: tuple[int, ...]  # ranks that have not come to it
    elsewhere: tuple[tuple[int, str], ...]  # ranks that are in another collective of that number
    unknown: tuple[int, ...]  # members whose recorder was not read

    @property
    def text(self) -> str:
        """``rank 3 has not entered all_reduce #1204, in which ranks 0-2 wait``."""
        what, wait = f"{self.name} #{self.number}", f"{ranks_text(self.waiting)} {_verb(self.waiting, 'wait')}"
        if self.elsewhere:
            others = ", ".join(f"rank {rank} is in {name} #{self.number}" for rank, name in self.elsewhere)
            return f"{others}, {ranks_text(self.waiting)} in {what}"
        if self.missing:
            return f"{ranks_text(self.missing)} {_verb(self.missing, 'have')} not entered {what}, in which {wait}"
        if self.unknown:
            return f"{wait} in {what}; no flight recorder is known of {ranks_text(self.unknown)}"
        return f"all {len(self.waiting)} ranks are in {what}, and it does not end"


def open_collectives(rows: Sequence[RankCollective]) -> list[OpenCollective]:
    """For each process group, the collective that does not end; first those that a rank has not entered."""
    groups: dict[str, dict[int, RankCollective]] = {}
    for row in rows:
        groups.setdefault(row.group, {})[row.rank] = row  # of a rank the latest
    found = [one for group, ranks in groups.items() if (one := _stuck(group, ranks)) is not None]
    return sorted(found, key=lambda one: not (one.missing or one.elsewhere))[:3]


def _stuck(group: str, ranks: dict[int, RankCollective]) -> OpenCollective | None:
    waiting = [row for row in ranks.values() if row.waits_for is not None]
    if not waiting:
        return None
    number = min(row.waits_for for row in waiting if row.waits_for is not None)
    inside = [row for row in waiting if row.waits_for == number]
    name = Counter(row.name for row in inside).most_common(1)[0][0]
    members = {rank for row in inside for rank in row.members}
    return OpenCollective(
        group=group,
        number=number,
        name=name,
        waiting=tuple(sorted(row.rank for row in inside if row.name == name)),
        missing=tuple(sorted(row.rank for row in ranks.values() if row.entered < number)),
        elsewhere=tuple(sorted((row.rank, row.name) for row in inside if row.name != name)),
        unknown=tuple(sorted(members - ranks.keys())),
    )


def _verb(ranks: Sequence[int], verb: str) -> str:
    if len(ranks) != 1:
        return verb
    return "has" if verb == "have" else f"{verb}s"


def groups_text(groups: Sequence[StandingThreads], most: int) -> str:
    """The first groups in words; threads only if the training waits for them."""
    return ", ".join(group_text(group) for group in groups[:most] if group.kind not in BESIDE)


def group_text(group: StandingThreads) -> str:
    """``3 ranks (0-2) in backward() train.py:9``; ``a worker of rank 1 in open() data.py:40``."""
    return f"{who_text(group)} {what_text(group)}"


def who_text(group: StandingThreads) -> str:
    """``rank 3``, ``31 ranks``, ``a worker of rank 3``, ``the training``, ``2 threads of rank 1``."""
    if group.role in ("thread", "worker"):
        of = f" of {ranks_text(group.ranks)}" if group.ranks else ""
        return f"a {group.role}{of}" if group.number == 1 else f"{group.number} {group.role}s{of}"
    if not group.ranks:
        return "the training" if group.number == 1 else f"{group.number} processes"
    return f"rank {group.ranks[0]}" if len(group.ranks) == 1 else f"{len(group.ranks)} ranks"


def what_text(group: StandingThreads) -> str:
    """``in open() data.py:40``, ``is stopped at train.py:9``, ``has an unknown stack: ...``."""
    verb = "are" if group.number > 1 else "is"
    spot = f" {code_place(group.place)}" if group.place is not None else ""
    if group.kind == "stopped":
        return f"{verb} stopped" + (f" at{spot}" if spot else "")
    if group.kind == "ended":
        return f"{'have' if group.number > 1 else 'has'} ended"
    if group.kind == "unknown":
        why = f": {plain(group.doing)}" if group.doing else ""
        return f"{'have' if group.number > 1 else 'has'} an unknown stack{why}"
    if group.kind == "batch":
        return f"{verb} waiting for a batch{f' at{spot}' if spot else ''}"
    return f"in {plain(group.doing)}{spot}"


def ranks_text(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0-3, 6``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_list(ranks)}"


def rank_list(ranks: Sequence[int]) -> str:
    """``0-3, 6``."""
    return core_list(ranks).replace(",", ", ")


def group_json(group: StandingThreads) -> dict[str, Any]:  # Any: JSON
    place = group.place
    return {
        "who": who_text(group),
        "kind": group.kind,
        "role": group.role,
        "ranks": list(group.ranks),
        "pids": group.own_pids,
        "doing": group.doing,
        "where": {"file": place.file, "line": place.line, "function": place.function} if place is not None else None,
        "frames": [{"file": frame.file, "line": frame.line, "function": frame.function} for frame in group.frames],
    }


class PastStandstill(Struct):
    """One standstill whose stacks were taken; None if it has not ended, or no step was known."""

    taken: Standstill
    step: int | None  # the last step before it, of the process in focus
    ended_s: float | None = None
    collectives: list[RankCollective] = field(default_factory=list)  # of a rank and group the latest counts

    @property
    def stuck(self) -> list[OpenCollective]:
        """The collectives that do not end, and who is missing in them."""
        return open_collectives(self.collectives)

    @property
    def since_s(self) -> float:
        """When something last moved before the standstill."""
        return self.taken.t - self.taken.quiet_s


class Standstills:
    """Folds Standstill records, and the steps that end them."""

    def __init__(self) -> None:
        self.past: deque[PastStandstill] = deque(maxlen=16)  # each has up to 150 kB of stacks
        self.moved_s: float | None = None  # when a process last read or wrote files during a standstill

    def add_standstill(self, record: Standstill, step: int | None) -> None:
        """Fold a record; ``step``: the last one that has ended."""
        if record.moving:
            self.moved_s = record.t
        if not record.processes:
            return
        last = self.past[-1] if self.past else None
        if last is not None and last.ended_s is None and node_of(last.taken.pid) != node_of(record.pid):
            one = last.taken
            if abs(last.since_s - (record.t - record.quiet_s)) < 10.0:  # a step apart, one node waits for the other
                last.taken = structs.replace(
                    one,
                    quiet_s=one.quiet_s + max(0.0, record.t - one.t),
                    t=max(one.t, record.t),
                    processes=[*one.processes, *record.processes],
                    groups=[*one.groups, *record.groups],
                    folded=one.folded + record.folded,
                    idle=one.idle + record.idle,
                )
                return
        self.past.append(PastStandstill(record, step))

    def add_collectives(self, record: Collectives) -> None:
        """Fold a record of the collectives of the latest standstill."""
        if self.past and self.past[-1].ended_s is None:
            last = self.past[-1]
            last.collectives = [*last.collectives, *record.ranks][-MANY_HELD:]

    def note_steps(self, record: Steps) -> None:
        """Steps of one of its processes, or of one that was started since, end a standstill."""
        if not self.past or self.past[-1].ended_s is not None or not record.count:
            return
        if record.t - record.window_s / 2 > self.past[-1].taken.t:
            self.past[-1].ended_s = record.t

    def since(self, begin_s: float) -> PastStandstill | None:
        """The standstill that began at this moment; None if its stacks have not been taken."""
        last = self.past[-1] if self.past else None
        return last if last is not None and last.ended_s is None and last.taken.t >= begin_s else None
