"""The stack samples of a log, in the formats of speedscope and of flame graph tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from tuimon.code_origin import is_agent_file
from tuimon.node_ids import own_id
from tuimon.records import PHASES, Frame, Record, Stacks, Threads
from tuimon.session.rows import role_kind
from tuimon.session.session import Session
from tuimon.session.stacks.phases import placed
from tuimon.session.stacks.samples import RANGE, Sample
from tuimon.session.stacks.trie import Node
from tuimon.text import plain
from tuimon.views.export.process_names import ProcessNames

_Thread = tuple[int, int]  # pid, tid
_Counts = Counter[Node]


class Selection(Struct, frozen=True):
    """The part of a log to export: seconds count from the log's first record, ``role`` is as shown ("main", "worker").

    ``phase`` may be a user range as well: its path or its name; after RANGE also one that is called like a phase.
    """

    phase: str | None = None
    role: str | None = None
    from_s: float = 0.0
    until_s: float = float("inf")

    def includes_time(self, at_s: float) -> bool:
        """True if this moment, in seconds from the log's first record, is selected."""
        return self.from_s <= at_s <= self.until_s

    def includes_role(self, role: str) -> bool:
        """True if threads of this role are selected: "worker" means every worker, "worker 0" that one."""
        return self.role in (None, role, role_kind(role))


class ThreadProfile(Struct):
    """The samples of one thread: stacks of frames, root first, and how often each was seen.

    ``of``: whose it is where there are several, ``rank 3 on node2``; ids are those of its node.
    """

    pid: int
    tid: int
    role: str
    name: str
    of: str = ""
    stacks: list[tuple[tuple[Frame, ...], int]] = field(default_factory=list)


def thread_profiles(records: Iterable[Record], selection: Selection) -> list[ThreadProfile]:
    """The selected samples by thread, trainers' main threads first.

    Only samples of training threads lie in phases and ranges: with one selected, no other thread is given.
    """
    gathered = _Gathered(records, selection)
    out = []
    for (pid, tid), counts in gathered.threads():
        role = gathered.role(pid, tid)
        trains = gathered.is_trainer_main(pid, tid)
        if not selection.includes_role(role) or (selection.phase is not None and not trains):
            continue
        title = gathered.processes.title(pid)
        profile = ThreadProfile(own_id(pid), own_id(tid), role, gathered.names[pid, tid], title)
        for node, count in _of_part(counts, selection.phase, gathered.session, pid):
            own = tuple(frame for frame in node.frames if not is_agent_file(frame.file))  # without our hooks
            profile.stacks.append((own or node.frames, count))
        if profile.stacks:
            out.append(profile)
    return out


def _of_part(counts: _Counts, part: str | None, session: Session, pid: int) -> Iterable[tuple[Node, int]]:
    if part is None:
        return counts.items()
    sampled = session.stacks.get(pid)
    samples = sampled.placed(counts) if sampled is not None else placed(counts)
    return ((sample.node, sample.count) for sample in samples if _lies_in(sample, part))


def _lies_in(sample: Sample, part: str) -> bool:
    if part in PHASES:
        return sample.phase == part
    name = part.removeprefix(RANGE)
    return any(name in (path, path.rpartition("/")[2]) for path in sample.ranges)


class _Gathered:
    """All samples of the selected time, merged by thread and stack."""

    def __init__(self, records: Iterable[Record], selection: Selection) -> None:
        self.session = Session()
        self.processes = ProcessNames()
        self.names: dict[_Thread, str] = {}
        self._merged: dict[_Thread, _Counts] = {}
        self._roles: dict[_Thread, str] = {}
        early: list[Stacks] = []  # imports and set-up are in no phase, where markers show when steps begin
        for record in records:
            self.session.add(record)
            self.processes.add_record(record)
            if isinstance(record, Stacks) and selection.includes_time(record.t - (self.session.start_s or 0.0)):
                if selection.phase is not None and self._before_steps(record):
                    early.append(record)
                else:
                    self._merge(record)
            if isinstance(record, Threads):
                rows = self.session.over("recent").threads_of(record.pid)
                self._roles.update({(row.pid, row.tid): row.role for row in rows})
        for window in early:
            if self.session.step_stats.get(window.pid) is None:
                self._merge(window)

    def _before_steps(self, record: Stacks) -> bool:
        """True if no step was known yet when this window began."""
        stats = self.session.step_stats.get(record.pid)
        return stats is None or stats.first_step_s is None or record.t - record.window_s < stats.first_step_s - 1.0

    def _merge(self, record: Stacks) -> None:
        for stack in record.stacks:
            counts = self._merged.setdefault((record.pid, stack.tid), Counter())
            counts[self.session.trie.node(stack.frames)] += stack.count
            self.names[record.pid, stack.tid] = stack.thread

    def threads(self) -> list[tuple[_Thread, _Counts]]:
        """Each thread's samples, trainers' threads first."""
        trainers = self.session.trainers()
        return sorted(self._merged.items(), key=lambda item: (item[0][0] not in trainers, item[0]))

    def is_trainer_main(self, pid: int, tid: int) -> bool:
        """True if this is the training thread of a trainer."""
        return pid in self.session.trainers() and tid == self.session.training_tid(pid)

    def role(self, pid: int, tid: int) -> str:
        """The role as shown; the thread's name where no Threads record lists it."""
        unlisted = "main" if self.is_trainer_main(pid, tid) else self.names[pid, tid] or "thread"
        return self._roles.get((pid, tid), unlisted)


SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(
    records: Iterable[Record], selection: Selection, name: str, exporter: str
) -> dict[str, Any]:  # Any: JSON
    """The whole file as JSON values. Samples are merged per stack: order within a thread is by weight, not by time."""
    index: dict[tuple[str, str, int], int] = {}
    frames: list[dict[str, Any]] = []  # Any: JSON

    def number(frame: Frame) -> int:
        key = (frame.function, frame.file, frame.line)
        if key not in index:
            index[key] = len(frames)
            frames.append({"name": frame.function, "file": frame.file, "line": frame.line})
        return index[key]

    def profile(thread: ThreadProfile) -> dict[str, Any]:  # Any: JSON
        ordered = sorted(thread.stacks, key=lambda item: -item[1])
        return {
            "type": "sampled",
            "name": f"{thread.of}{': ' if thread.of else ''}{thread.role} ({thread.pid}/{thread.tid} {thread.name})",
            "unit": "none",
            "startValue": 0,
            "endValue": sum(count for _, count in ordered),
            "samples": [[number(frame) for frame in stack] for stack, _ in ordered],
            "weights": [count for _, count in ordered],
        }

    profiles = [profile(thread) for thread in thread_profiles(records, selection)]
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": exporter,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }


def collapsed(records: Iterable[Record], selection: Selection) -> Iterator[str]:
    """One line a stack, threads merged, most samples first."""
    counts: dict[str, int] = {}
    for thread in thread_profiles(records, selection):
        for stack, count in thread.stacks:
            line = ";".join(map(_collapsed_frame, stack))
            counts[line] = counts.get(line, 0) + count
    for line, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"{line} {count}"


def _collapsed_frame(frame: Frame) -> str:
    # ";" separates frames and the last space separates the count
    return plain(f"{frame.function} ({frame.file}:{frame.line})").replace(";", ":")
