"""The logs of one run on several nodes as one Source: merged in the order of time, their ids made unique."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import structs

from tuimon.bounds import FRAMES_HELD
from tuimon.errors import NotALog, UnreadableLog
from tuimon.node_ids import id_on_node
from tuimon.records import (
    Cost,
    Exit,
    Frame,
    Frames,
    Gil,
    Gpu,
    GpuTime,
    Header,
    Loader,
    LoopStack,
    MachineMemory,
    Native,
    Node,
    Notice,
    Process,
    Record,
    StackCount,
    Stacks,
    Standstill,
    Steps,
    Threads,
    TraceTaken,
)
from tuimon.sources.base import Done, Source
from tuimon.sources.log.reader import Lines, LogHead, check_header, decode, log_paths, read_head
from tuimon.sources.log.runs import Chosen, choose, names, unreadable_notice
from tuimon.text import plain, plural

#: Lag from which a log is taken to be over: its monitor was killed, or its node is gone.
STOPPED_S = 60.0


class NodeLog(Lines):
    """The log of a node: its records in order, also those appended later, and its state."""

    def __init__(self, path: str, number: int, label: str, frames: SharedFrameIds) -> None:
        """``number``: of the node, in the ids of its processes; ``label``: its name. Raises NotALog."""
        super().__init__(path)
        try:
            first = self.first()
            if not first:
                raise NotALog(f"{plain(path)} is empty", "Its run may not have started yet.")
            self.header = check_header(first, path)
        except NotALog:
            self.close()
            raise
        self.number = number
        self.label = label
        self.exit: Exit | None = None
        self.failure: UnreadableLog | None = None  # why it is not read on
        self.waiting = deque[Record]([self.header])  # records that have been read but not passed on
        self.at_end = False  # True if there was no more to read
        self.renumbering = Renumbering(number, frames)
        #: seconds to add to a moment of this log, to get the wall clock, which all nodes set by the network
        self.shift_s = self.header.wall_unix_s - self.header.t
        self.latest_s = self._read_s = self.header.t  # of the records passed on; of the records read

    @property
    def latest_unix_s(self) -> float:
        """The moment of its latest record, by that clock."""
        return self.latest_s + self.shift_s

    @property
    def read_unix_s(self) -> float:
        """Time of the latest record that was read."""
        return self._read_s + self.shift_s

    def read_ahead(self, count: int) -> None:
        """Read this many records now, or all that there are, for ``waiting``."""
        while len(self.waiting) < count and not self.at_end:
            records: list[Record] = []
            try:
                records = self.read_records()
            except UnreadableLog as error:
                self.failure = error
            for number, record in enumerate(records):
                if type(record) is Header and record != self.header:  # the same: a write that failed was repeated
                    what = f"{plain(self._path)} has the log of another run behind its first: they are not one run"
                    self.failure = self._failure = UnreadableLog(what, "Give each log a file of its own")
                    del records[number:]
                    break
            self.at_end = not records
            self.waiting.extend(record for record in records if type(record) is not Header)
            self._read_s = max([self._read_s, *(record.t for record in records)])

    def pop(self) -> None:
        """Remove the first record of ``waiting``: it was passed on."""
        t = self.waiting.popleft().t
        self.latest_s = max(self.latest_s, t)

    def node(self, newest_unix_s: float) -> Node:
        """The node as of now; ``newest_unix_s``: the newest record of any node."""
        behind_s = max(0.0, newest_unix_s - self.latest_unix_s)
        state = (
            "ended" if self.exit else "stopped" if behind_s > max(STOPPED_S, self.header.late_after_s) else "writing"
        )
        return Node(
            t=self.latest_unix_s,
            pid=0,
            number=self.number,
            host=self.label,
            cpu_count=self.header.cpu_count,
            state="late" if state == "writing" and behind_s > self.header.late_after_s else state,  # type: ignore[arg-type]  # literals
            behind_s=behind_s,
            exit_code=self.exit.exit_code if self.exit else None,
        )


class PlayPace:
    """Plays at ``speed`` times the recorded pace.

    ``at_once_s``: this many recorded seconds are due immediately; the rest is played, up to ``most_s``.
    """

    def __init__(
        self,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        *,
        at_once_s: float = 0.0,
        most_s: float = math.inf,
    ) -> None:
        self._speed = speed
        self._at_once_s = at_once_s
        self._most_s = most_s - at_once_s
        self._clock = clock
        self._began: tuple[float, float] | None = None  # a moment of the clock, and the ``t`` due at it

    def is_due(self, t: float) -> bool:
        """True if a record of moment ``t`` is due."""
        now_s = self._clock()
        if self._began is None:
            self._began = (now_s, t + self._at_once_s)
        clock_s, record_s = self._began
        return t - record_s <= min((now_s - clock_s) * self._speed, self._most_s)


#: The latest moment in a log so far, on the wall clock that all logs share; the log, and the record that is next.
Next: TypeAlias = tuple[float, NodeLog, Record]


class JoinedNotices:
    """Folds the notices of all nodes."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Notice]] = {}  # source -> node -> its notice

    def add_notice(self, notice: Notice, host: str, nodes: int) -> Notice:
        """Add a notice of one node; returns the notice to show for all. ``nodes``: how many the run has."""
        held = self._held.setdefault(notice.source, {})
        held.pop(host, None)
        if notice.level != "ok":
            held[host] = notice
        if not held:
            return structs.replace(notice, pid=0)
        latest = next(reversed(held.values()))
        alike = sorted(host for host, each in held.items() if each.message == latest.message)
        if nodes == len(alike):
            return structs.replace(latest, pid=0)
        return structs.replace(latest, pid=0, message=f"{names(alike)}: {latest.message}")


class RunLogs:
    """Opens the logs of a run; ``logs`` has them in the order of their nodes."""

    def __init__(self, chosen: Chosen, *, follow: bool) -> None:
        """``follow``: logs of further nodes may appear in their folder.

        Raises NotALog; UnreadableLog if none can be read.
        """
        self.logs: list[NodeLog] = []
        self._unopened: list[UnreadableLog] = []
        self._frames = SharedFrameIds()
        heads = sorted(chosen.logs, key=_order)
        # no other log will join it
        self.is_alone = not heads or (len(heads) == 1 and (not follow or heads[0].header.run is None))
        if self.is_alone:
            self.logs.append(NodeLog(chosen.path, 0, "", self._frames))
            return
        self._folder = os.path.dirname(heads[0].path)
        self._begun_unix_s = min(head.header.wall_unix_s for head in heads)
        self._seen = {head.path for head in heads}
        for head in heads:
            try:
                self._open(head)
            except UnreadableLog as error:
                self._unopened.append(error)
            except NotALog:
                self.close()
                raise
        if not self.logs:
            raise self._unopened[0]

    @property
    def unreadable(self) -> list[UnreadableLog]:
        """Why some logs of the run are not read, or not to their end."""
        return [*self._unopened, *(log.failure for log in self.logs if log.failure is not None)]

    def search(self) -> bool:
        """Open the logs of this run that have appeared since; True if there are any."""
        before = len(self.logs)
        if self.is_alone:
            return False
        with contextlib.suppress(NotALog):
            for path in log_paths(self._folder):
                if path not in self._seen:
                    self._examine(path)
        return len(self.logs) > before

    def close(self) -> None:
        for log in self.logs:
            log.close()

    def _examine(self, path: str) -> None:
        try:
            head = read_head(path)
            if head is None:  # it has just been made: its header is still to come
                return
            self._seen.add(path)
            name = self.logs[0].header.run
            if name is not None and head.header.run == name and head.header.wall_unix_s >= self._begun_unix_s:
                self._open(head)
        except NotALog:
            self._seen.add(path)

    def _open(self, head: LogHead) -> None:
        """Open a log: several may be of one node, and several nodes may have one name."""
        _allow_files(len(self.logs) + 1)
        host, boot_unix_s = head.header.host, _boot_unix_s(head.header)
        number, label = max((log.number for log in self.logs), default=-1) + 1, host
        alike = [log for log in self.logs if log.header.host == host]
        if alike:
            label = f"{host}#{len({log.number for log in alike}) + 1}"
        for log in alike:
            if abs(_boot_unix_s(log.header) - boot_unix_s) < 2.0:  # each boot has its own zero
                number, label = log.number, log.label
                break
        self.logs.append(NodeLog(head.path, number, label, self._frames))


def _boot_unix_s(header: Header) -> float:
    return header.wall_unix_s - header.t


def _order(head: LogHead) -> tuple[bool, int, str, float]:
    """Sort key: nodes in the order of their job's numbers, then those without a number by name."""
    node = head.header.node
    return node is None, node or 0, head.header.host, head.header.wall_unix_s


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files by a number, or to the most that is permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 64  # the others of this process
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def nodes_of(logs: Sequence[NodeLog], newest_unix_s: float) -> list[Node]:
    """The present state of the nodes; of a node with several logs, that of the live log that is furthest behind."""
    found: dict[int, Node] = {}
    for node in (log.node(newest_unix_s) for log in logs):
        known = found.get(node.number)
        if known is None or (node.state != "ended", node.behind_s) > (known.state != "ended", known.behind_s):
            found[node.number] = node
    return list(found.values())


def joined_exit(logs: Sequence[NodeLog]) -> Exit | None:
    """The end of the run: that of the first node that failed; None while any node goes on."""
    ends = [(log, log.exit) for log in logs if log.exit is not None]
    if len(ends) < len(logs):
        return None
    decisive = min(ends, key=lambda end: (not end[1].exit_code, end[1].exit_code is not None, end[1].t))[1]
    survivors = [pid for _, end in ends for pid in end.survivors]
    return msgspec.structs.replace(decisive, t=max(end.t for _, end in ends), survivors=survivors)


def merged(logs: Iterable[NodeLog]) -> list[Next]:
    """The oldest records, in order, each to be popped from its log; empty if all logs are at their ends.

    A log that has come to its end for now holds up no other: what it writes later comes later. Three logs have records
    at 1 3 5, at 2 4 and, up to its end, at 6: those to 4 are merged, then the second is read.
    """
    for log in logs:
        if not log.at_end:
            log.read_ahead(100)
    until_unix_s = min((log.read_unix_s for log in logs if not log.at_end), default=math.inf)
    found: list[Next] = []
    for log in logs:
        latest_s = log.latest_s
        for record in log.waiting:
            latest_s = max(latest_s, record.t)  # one that is dated earlier than those before it follows them
            if latest_s + log.shift_s > until_unix_s:
                break
            found.append((latest_s + log.shift_s, log, record))
    found.sort(key=itemgetter(0))  # stable: records of one moment stay in the order of their logs
    return found


#: Records that are not passed on as they are.
_SPECIAL = frozenset((Header, Notice, Cost, Exit, Gpu, MachineMemory))


class LogSource(Source):
    """A log, or all of a run: its records as fast as they are read, or at a recorded pace; then those appended."""

    name = "log"
    #: A read ends once it has passed on this many records.
    BATCH = 20_000

    def __init__(
        self,
        chosen: Chosen,
        pace: PlayPace | None = None,
        *,
        follow: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open what was chosen; without a ``pace`` all is due immediately. Raises NotALog."""
        self._opened = RunLogs(chosen, follow=follow)
        self._logs = self._opened.logs
        self._is_alone = self._opened.is_alone
        self.period_s = 0.2 if self._is_alone else 0.5  # each read queries the file system about every log
        self._follow = follow
        self._clock = clock
        self._pace = pace
        self._notices = JoinedNotices()
        self._costs: dict[int, Cost] = {}
        self._owners: dict[str, NodeLog] = {}  # GPU or memory -> the one log of its node that is believed
        self._nodes: dict[int, Node] = {}  # as last passed on
        self._skipped = 0
        self._left_out = chosen.left_out
        self._unreadable = 0  # logs of the run that a Notice has named
        self._searched_s = clock()
        self.header = self._logs[0].header
        self._zero_s = self._logs[0].shift_s  # added to a moment of the header's clock, it gives the wall clock
        self._newest_unix_s = min(log.header.wall_unix_s for log in self._logs)
        self._due: list[Record] = [self.header, *chosen.notices(self.header.t), *self._changed_nodes()]
        self.read_ratio = self._read_so_far() if pace is None else None

    def read(self) -> Iterator[Record]:
        """The records that are due. Raises Done at the end of a run that is no longer written."""
        if self._follow and self._clock() - self._searched_s >= 5.0:  # nodes may have come
            self._searched_s = self._clock()
            if self._opened.search():
                self._due += self._changed_nodes()
        first, self._due = self._due, []
        yield from first
        if self.read_ratio is not None:
            self.read_ratio = self._read_so_far()
        for log in self._logs:
            log.at_end = False  # something may have been appended
        passed = 0
        while passed < self.BATCH:
            found = merged(self._logs)
            if not found:
                self.read_ratio = None
                yield from self._at_end()
                return
            due = [each for each in found if self._pace is None or self._pace.is_due(each[0])]
            if not due:
                return
            yield from self._due_records(due)
            passed += len(due)

    def read_all(self) -> Iterator[Record]:
        """Every record until the end, the header first; then the files are closed.

        Torn lines do not count as skipped: the last of a run that was killed, or any before which the disk was full.
        """
        with contextlib.closing(self), contextlib.suppress(Done):
            while True:
                yield from self.read()

    def _read_so_far(self) -> float:
        each = [log.bytes_read() for log in self._logs]
        return sum(read for read, _ in each) / max(1, sum(of for _, of in each))

    def _due_records(self, due: Sequence[Next]) -> Iterator[Record]:
        zero_s = self._zero_s
        for at_unix_s, log, record in due:
            log.pop()
            self._newest_unix_s = max(self._newest_unix_s, at_unix_s)
            if type(record) in _SPECIAL:
                yield from self._run_records(log, record)
            elif self._is_alone:
                yield record
            elif (adopted := log.renumbering.renumbered(record, log.shift_s - zero_s)) is not None:
                yield adopted

    def close(self) -> None:
        self._opened.close()

    def _run_records(self, log: NodeLog, record: Record) -> Iterator[Record]:
        """Turns a record of one log into records of the run."""
        if isinstance(record, Header):
            return
        key = record.uuid if isinstance(record, Gpu) else f"memory of node {log.number}"
        if isinstance(record, Gpu | MachineMemory) and self._owners.setdefault(key, log) is not log:
            return  # another log of the node records the same: each rank may have a tuimon of its own
        adopted = log.renumbering.renumbered(record, log.shift_s - self._zero_s)
        match adopted:
            case None:
                pass
            case Notice():
                yield self._notices.add_notice(adopted, log.label, len(self._logs))
            case Cost():  # only that of the node on which tuimon costs most
                self._costs[log.number] = adopted
                yield max(self._costs.values(), key=lambda cost: cost.cpu_ratio)
            case Exit():
                log.exit = adopted
                yield from self._changed_nodes()
                end = joined_exit(self._logs)
                if end is not None:
                    yield end
            case _:
                yield adopted

    def _at_end(self) -> Iterator[Record]:
        """Handle the end of all that is written so far. Raises Done if there will be no more."""
        ended = all(log.exit is not None for log in self._logs)
        if not self._follow and not ended:
            for log in self._logs:
                last = decode(log.torn())  # a last line that lacks its end
                if last is not None:
                    yield from self._run_records(log, last)
        yield from self._changed_nodes()
        skipped = sum(log.skipped for log in self._logs)
        if skipped > self._skipped:
            self._skipped = skipped
            message = f"{plural(skipped, 'line')} of the log skipped: damaged, or written by a newer tuimon"
            yield Notice(t=self._now_s, pid=0, source="log", level="warning", message=message)
        unreadable = self._opened.unreadable
        if unreadable and self._is_alone:
            raise unreadable[0]
        if len(unreadable) > self._unreadable:
            self._unreadable = len(unreadable)
            yield unreadable_notice([*self._left_out, *unreadable], self._now_s)
        if not self._follow or ended:
            raise Done

    @property
    def _now_s(self) -> float:
        return self._newest_unix_s - self._zero_s

    def _changed_nodes(self) -> Iterator[Record]:
        """Records of the nodes whose state has changed."""
        if self._is_alone:
            return
        for node in nodes_of(self._logs, self._newest_unix_s):
            before = self._nodes.get(node.number)
            is_late = node.state != "ended" and before is not None and abs(node.behind_s - before.behind_s) >= 5.0
            if before is None or node.state != before.state or is_late:
                self._nodes[node.number] = node
                yield structs.replace(node, t=node.t - self._zero_s)


def read_records(path: str) -> Iterator[Record]:
    """All records of the logs at a path, as ``LogSource.read_all``. Raises NotALog, on the first record."""
    yield from LogSource(choose(path)).read_all()


class SharedFrameIds:
    """One id for each different frame of a run: its ranks run the same code."""

    def __init__(self) -> None:
        self._ids: dict[Frame, int] = {}

    def intern(self, frames: Iterable[Frame]) -> tuple[list[int], list[Frame]]:
        """The ids of frames, and those of them that are new, whose ids count up to the latest."""
        ids, new = [], []
        for frame in frames:
            number = self._ids.get(frame)
            if number is None:
                number = len(self._ids)
                if number < FRAMES_HELD:  # further ones have one id that no frame has
                    self._ids[frame] = number
                    new.append(frame)
            ids.append(number)
        return ids, new

    def __len__(self) -> int:
        return len(self._ids)


class Renumbering:
    """Renumbers the records of one log in place: nothing else holds records that have just been decoded."""

    def __init__(self, node: int, frames: SharedFrameIds) -> None:
        """``node``: the number that distinguishes its processes from those of other logs."""
        self._base = id_on_node(node, 0)
        self._all_frames = frames
        self._frames: dict[int, int] = {}  # ids in this log -> ids in the run

    def renumbered(self, record: Record, shift_s: float) -> Record | None:
        """The record, ``shift_s`` later; None if it has nothing new."""
        kind, base = type(record), self._base
        structs.force_setattr(record, "t", record.t + shift_s)
        for field in _MOMENTS.get(kind, ()):
            _change(record, field, lambda moment: moment + shift_s)
        if base:
            for field in ("pid", *_IDS.get(kind, ())):
                _change(record, field, lambda ids: _on_node(ids, base))
        if isinstance(record, Stacks):
            known, rows = self._frames, list[StackCount | LoopStack]([*record.stacks, *record.loop])
            for stack in rows:
                structs.force_setattr(stack, "frames", [known.get(number, FRAMES_HELD) for number in stack.frames])
        elif isinstance(record, Frames):
            ids, new = self._all_frames.intern(record.frames)
            self._frames.update(enumerate(ids, record.first))
            return Frames(t=record.t, pid=0, first=len(self._all_frames) - len(new), frames=new) if new else None
        return record


def _change(record: Any, field: str, new: Callable[[Any], Any]) -> None:  # noqa: ANN401  (a record, and values of the field's type)
    """Change the value of a field, unless it is None; ``rows.field`` stands for the field of each row."""
    rows, _, name = field.rpartition(".")
    for holder in (getattr(record, rows) or ()) if rows else (record,):
        value = getattr(holder, name)
        if value is not None:
            structs.force_setattr(holder, name, new(value))


def _on_node(ids: Any, base: int) -> Any:  # noqa: ANN401  (an id, or any rows that hold ids and texts)
    if isinstance(ids, int):
        return ids | base
    return ids if isinstance(ids, str) else type(ids)(_on_node(each, base) for each in ids)


#: Further fields with moments, and with ids of processes and threads.
_MOMENTS: dict[type[Record], tuple[str, ...]] = {
    Steps: ("first_backward_s", "first_step_s", "last_step_s"),
    GpuTime: ("exchanges.reached_s",),
    TraceTaken: ("begin_s", "end_s"),
}
_IDS: dict[type[Record], tuple[str, ...]] = {
    Steps: ("tid",),
    Threads: ("threads.tid", "faults.tid", "ended"),
    Gil: ("threads.tid", "functions.tid"),
    Native: ("code.tid",),
    Stacks: ("stacks.tid", "parked"),
    Gpu: ("pids", "processes.pid"),
    Loader: ("workers.pid",),
    MachineMemory: ("placed.pid",),
    Process: ("ppid",),
    Standstill: ("moving", "processes.pid", "processes.tid", "processes.peers", "groups.threads"),
    Exit: ("survivors",),
}
