"""A log for other viewers: counters for Perfetto, stack samples for speedscope and flame graph tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TextIO

from msgspec import Struct

from tuimon.code_origin import is_agent_file
from tuimon.node_ids import id_on_node, own_id
from tuimon.records import (
    PHASES,
    Exit,
    Frame,
    Gpu,
    GpuTime,
    Header,
    Mark,
    Node,
    Process,
    Record,
    Stacks,
    Steps,
    Threads,
)
from tuimon.session.session import Session
from tuimon.session.stacks.samples import RANGE
from tuimon.session.stacks.trie import StackNode
from tuimon.session.threads import role_kind
from tuimon.text import plain
from tuimon.views.json_text import json_text

_Thread = tuple[int, int]  # pid, tid
_Counts = Counter[StackNode]
#: Ids of processes are below this on Linux (PID_MAX_LIMIT); Perfetto reads 32 bits.
_PIDS = 1 << 22
_Event = dict[str, Any]  # Any: JSON


def write_perfetto(records: Iterable[Record], out: TextIO) -> None:
    """Write the file, event by event: a log of a day has millions. Times are microseconds of the monotonic clock."""
    separator = '{"displayTimeUnit":"ms","traceEvents":['
    session, numbers = Session(), dict[int, int]()
    taken: set[int] = set()
    for record in records:
        if isinstance(record, Header | Node | Process):
            session.add(record)
        for event in _events(record, session):
            pid = event["pid"]
            if pid not in numbers:  # within 32 bits: its own pid, unless another node's process has that
                numbers[pid] = own_id(pid) if own_id(pid) not in taken else _PIDS + len(numbers)
                taken.add(numbers[pid])
            event["pid"] = numbers[pid]
            out.write(separator + json_text(event).rstrip("\n"))
            separator = ","
    out.write("]}\n" if separator == "," else separator + "]}\n")


def _events(record: Record, session: Session) -> Iterator[_Event]:
    match record:
        case Node():  # facts recorded once for a node
            yield _meta(id_on_node(record.number, 0), "process_name", name=f"node {record.host}")
        case Process():
            command = f"{record.role} {' '.join(record.command)[:80]}"
            yield _meta(
                record.pid, "process_name", name=": ".join(filter(None, (title_of(session, record.pid), command)))
            )
            rank = rank_of(session, record.pid)
            if rank is not None:
                yield _meta(record.pid, "process_sort_index", sort_index=rank)
        case Steps() if record.count:
            if record.usual:
                per_step = {p.name: p.total_ns / record.usual / 1e6 for p in record.phases}
                yield _counter(record, "ms per step", per_step)
            yield _counter(record, "steps per second", {"steps": record.count / record.window_s})
        case Threads() if record.cpu_ratio is not None:
            yield _counter(record, "CPU cores", {"cores": record.cpu_ratio})
        case Gpu() if record.util_ratio is not None:
            yield _counter(record, f"GPU {record.index} utilisation", {"percent": 100 * record.util_ratio})
        case GpuTime():
            leads = {lead.boundary: lead.median_us / 1000 for lead in record.leads if lead.median_us is not None}
            if leads:
                yield _counter(record, "launches run ahead, ms", leads)
            if record.total_ns:
                in_steps = [phase for phase in record.phases if phase.name != "eval"]
                shares = {phase.name: phase.span_ns / record.total_ns for phase in in_steps}
                yield _counter(record, "GPU time by phase", shares)
                idle = sum(phase.idle_ns for phase in in_steps) / record.total_ns
                yield _counter(record, "GPU idle, certain", {"ratio": idle})
        case Mark():
            yield _instant(record, "p", record.name)
        case Exit():
            yield _instant(record, "g", f"ended: {record.signal or record.exit_code}")


def _counter(record: Record, name: str, values: dict[str, float]) -> _Event:
    return {"ph": "C", "name": name, "pid": record.pid, "ts": record.t * 1e6, "args": values}


def _instant(record: Record, scope: str, name: str) -> _Event:
    """An instant event; ``scope``: "p" for its process, "g" for all."""
    return {"ph": "i", "s": scope, "name": name, "pid": record.pid, "tid": own_id(record.pid), "ts": record.t * 1e6}


def _meta(pid: int, kind: str, **args: object) -> _Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": 0, "args": args}


def rank_of(session: Session, pid: int) -> int | None:
    """The rank of a training process; None for a process without one."""
    process = session.over("recent").of(pid).process
    return process.rank if not process.serves else None


def title_of(session: Session, pid: int) -> str:
    """``rank 3 on node2``, ``rank 3``, ``on node2``; empty for a process without a rank, on the only node."""
    rank, host = rank_of(session, pid), session.over("recent").of(pid).host
    on_host = f"on {host}" if len(session.nodes.known) > 1 and host else ""
    return " ".join(filter(None, ("" if rank is None else f"rank {rank}", on_host)))


class Selection(Struct, frozen=True):
    """The part of a log to export: seconds count from the log's first record, ``role`` is as shown on the screen.

    Role "worker" means every worker, "worker 0" that one.
    ``phase`` may also be the path or name of a user range; after RANGE also of one that is called like a phase.
    """

    phase: str | None = None
    role: str | None = None
    from_s: float = 0.0
    until_s: float = float("inf")

    def includes_time(self, at_s: float) -> bool:
        """True if this moment, in seconds from the log's first record, is selected."""
        return self.from_s <= at_s <= self.until_s


class ThreadProfile(NamedTuple):
    """The samples of one thread: its role and ids for people, and how often each stack of frames, root first, was seen.

    The name has rank and node of its process, if there are several: ``rank 3 on node2: main (7/7 python)``.
    """

    name: str
    stacks: Sequence[tuple[Sequence[Frame], int]]


def thread_profiles(records: Iterable[Record], selection: Selection) -> list[ThreadProfile]:
    """The selected samples by thread, trainers' threads first.

    Only samples of training threads lie in phases and ranges: if one is selected, other threads are left out.
    """
    session, roles, names, counts = Session(), dict[_Thread, str](), dict[_Thread, str](), dict[_Thread, _Counts]()
    early: list[Stacks] = []  # before the first step: imports and set-up, in no phase of a marked process

    def merge(window: Stacks) -> None:
        for stack in window.stacks:
            thread = window.pid, stack.tid
            counts.setdefault(thread, Counter())[session.trie.node(stack.frames)] += stack.count
            names[thread] = stack.thread

    for record in records:
        session.add(record)
        if isinstance(record, Stacks) and selection.includes_time(record.t - session.start_s):
            first_s = session.step_stats[record.pid].first_step_s
            if selection.phase is not None and (first_s is None or record.t - record.window_s < first_s - 1.0):
                early.append(record)
            else:
                merge(record)
        if isinstance(record, Threads):
            roles |= {(row.pid, row.tid): row.role for row in session.over("recent").of(record.pid).threads}
    for window in early:
        if window.pid not in session.step_stats:
            merge(window)
    trainers, found = session.trainers(), list[ThreadProfile]()
    for (pid, tid), seen in sorted(counts.items(), key=lambda item: (item[0][0] not in trainers, item[0])):
        trains, name = pid in trainers and tid == session.stacks[pid].tid, names[pid, tid]
        role = roles.get((pid, tid), "main" if trains else name or "thread")  # as on the screen, if it is listed there
        if selection.role not in (None, role, role_kind(role)) or (selection.phase is not None and not trains):
            continue
        stacks = []
        for node, count in _stacks_of_part(seen, selection.phase, session, pid):
            own = tuple(frame for frame in node.frames if not is_agent_file(frame.file))  # without tuimon's hooks
            stacks.append((own or node.frames, count))
        if stacks:
            whose = ": ".join(filter(None, (title_of(session, pid), role)))
            found.append(ThreadProfile(f"{whose} ({own_id(pid)}/{own_id(tid)} {name})", stacks))
    return found


def _stacks_of_part(counts: _Counts, part: str | None, session: Session, pid: int) -> Iterable[tuple[StackNode, int]]:
    """The stacks of a phase or a range; all without one."""
    if part is None:
        return counts.items()
    samples, name = session.stacks[pid].placed(counts), part.removeprefix(RANGE)
    if part in PHASES:
        return [(sample.node, sample.count) for sample in samples if sample.phase == part]
    inside = (each for each in samples if any(name in (at, at.rpartition("/")[2]) for at in each.ranges))
    return [(sample.node, sample.count) for sample in inside]


SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(
    records: Iterable[Record], selection: Selection, name: str, exporter: str
) -> dict[str, Any]:  # Any: JSON
    """The whole file as JSON values. Samples are merged per stack: order within a thread is by weight, not by time."""
    index: dict[tuple[str, str, int], int] = {}  # of each frame in the file's list

    def number(frame: Frame) -> int:
        return index.setdefault((frame.function, frame.file, frame.line), len(index))

    def profile(thread: ThreadProfile) -> dict[str, Any]:  # Any: JSON
        ordered = sorted(thread.stacks, key=lambda item: -item[1])
        return {
            "type": "sampled",
            "name": thread.name,
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
        "shared": {"frames": [{"name": name, "file": file, "line": line} for name, file, line in index]},
        "profiles": profiles,
    }


def collapsed(records: Iterable[Record], selection: Selection) -> Iterator[str]:
    """One line a stack, threads merged, most samples first."""
    counts = Counter[str]()
    for thread in thread_profiles(records, selection):
        for stack, count in thread.stacks:
            # ";" separates frames and the last space separates the count
            counts[";".join(plain(f"{at.function} ({at.file}:{at.line})").replace(";", ":") for at in stack)] += count
    for line, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"{line} {count}"
