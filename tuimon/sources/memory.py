"""Reads memory histories: those ordered from the first training process, and those that out-of-memory errors leave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import msgspec

from tuimon.agent.ring.control_words import Command
from tuimon.agent.ring.files import MEMORY, remove_file, ring_path, side_file
from tuimon.proc.processes import start_unix_s
from tuimon.proc.ring_facts import RawFrame, decoded, read_side_file
from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.records import Frame, MemoryHistory, MemoryLine, Notice, Record
from tuimon.sources.base import Source
from tuimon.sources.control_channel import ANSWER_S, ControlError, Request, give_order
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.source_facts import NAME_CHARS, ProcessCode

#: Lines of one record.
_LINES = 40
#: A greater one is damaged.
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class _Stack(msgspec.Struct):
    frames: list[int]
    bytes: _Number
    blocks: _Number
    growth: _Number | None = None


class _File(msgspec.Struct):
    trigger: Literal["asked", "oom"]
    device: str
    steps: _Number
    lines: list[RawFrame]
    stacks: list[_Stack]
    live_bytes: _Number
    most_bytes: _Number
    folded_bytes: _Number
    pause_ns: _Number
    wanted_bytes: _Number | None = None


def read_history(raw: bytes, pid: int, t: float, code: ProcessCode) -> MemoryHistory | None:
    """The record of a history that an agent has written; None if that is damaged."""
    file = decoded(raw, _File)
    if file is None:
        return None
    groups: dict[RawFrame, list[_Stack]] = {}
    for stack in file.stacks:
        frames = [file.lines[number] for number in reversed(stack.frames) if 0 <= number < len(file.lines)]
        innermost = code.innermost(frames) or (frames[-1] if frames else RawFrame("", 0, ""))  # the user's, or any
        groups.setdefault(innermost, []).append(stack)
    ordered = sorted(groups.items(), key=lambda group: -sum(stack.bytes for stack in group[1]))
    return MemoryHistory(
        t=t,
        pid=pid,
        trigger=file.trigger,
        device=file.device[:NAME_CHARS],
        steps=file.steps,
        live_bytes=file.live_bytes,
        most_bytes=file.most_bytes,
        lines=[_memory_line(code.frame(key), stacks) for key, stacks in ordered[:_LINES]],
        folded_bytes=file.folded_bytes + sum(s.bytes for _, stacks in ordered[_LINES:] for s in stacks),
        wanted_bytes=file.wanted_bytes,
        pause_ms=round(file.pause_ns / 1e6, 3),
    )


def _memory_line(at: Frame, stacks: list[_Stack]) -> MemoryLine:
    known = [stack.growth for stack in stacks if stack.growth is not None]
    return MemoryLine(
        *(at.file, at.line, at.function, at.source, at.user),
        sum(stack.bytes for stack in stacks),
        sum(stack.blocks for stack in stacks),
        sum(known) if known else None,
    )


#: Steps of a recording: enough to show what each leaves behind, few enough to keep the profiler's cost on a CPU short.
RECORDED_STEPS = 5


class MemorySource(Source):
    """Records a memory history on request; with ``always`` also once without one, and at out-of-memory errors."""

    name = "memory"
    period_s = 0.5

    def __init__(self, table: ProcessTable, always: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._always = always
        self._clock = clock
        self._request: Request | None = None  # a recording that has been ordered
        self._first_s: float | None = None  # when to record by itself
        self._files: dict[int, str] = {}  # of training processes, by pid; they outlive their process

    def read(self) -> Iterable[Record]:
        """The record of a recording that has ended, or a notice that it failed."""
        if not (self._always or self._table.wants_memory or self._request):
            return
        now_s = self._clock()
        trainers = self._table.by_rank(self._table.trainers())
        if self._always:
            yield from self._after_errors(trainers, now_s)
            if trainers and self._first_s is None:
                self._first_s = now_s + 10.0  # beyond its first steps
            if self._first_s is not None and now_s >= self._first_s:
                self._first_s, self._table.wants_memory = float("inf"), True
        if self._table.wants_memory and self._request is None:
            self._table.wants_memory = False
            yield self._begun(trainers[0] if trainers else None)
        if self._request is not None:
            yield from self._go_on(self._request, now_s)

    def close(self) -> None:
        """Take back the order."""
        if self._request is not None:
            self._request.close()
            self._request = None

    def _begun(self, pid: int | None) -> Notice:
        if pid is None:
            return self._notice("warning", "no process trains yet", "try again once there are steps")
        try:
            self._request = give_order(pid, Command.MEMORY, RECORDED_STEPS)
        except ControlError as error:
            return self._notice("warning", error.message, error.hint)
        return self._notice("info", f"the next {RECORDED_STEPS} steps of process {pid} are being recorded")

    def _go_on(self, request: Request, now_s: float) -> Iterable[Record]:
        request.poll()
        try:
            if request.is_over:
                request.result()
                yield from self._records(side_file(request.channel.path, MEMORY), request.channel.pid, now_s)
                yield self._notice("ok", "recorded")
            elif request.quiet_s > ANSWER_S:
                raise request.no_answer()
            else:
                return
        except ControlError as error:
            yield self._notice("warning", error.message, error.hint)
        self.close()

    def _after_errors(self, trainers: list[int], now_s: float) -> Iterable[Record]:
        """The histories that out-of-memory errors have left, also in processes that ended by them."""
        for pid in trainers:
            if pid not in self._files:
                try:
                    self._files[pid] = side_file(ring_path(pid), MEMORY)
                except (OSError, ValueError, IndexError):
                    continue
        recording = self._request.channel.pid if self._request is not None else None
        for pid, path in list(self._files.items()):
            if pid != recording and os.path.exists(path):
                yield from self._records(path, pid, now_s)
            elif pid not in trainers:
                del self._files[pid]

    def _records(self, path: str, pid: int, now_s: float) -> Iterable[Record]:
        raw = read_side_file(path)
        remove_file(path)
        ticks = self._table.start_ticks(pid)
        files = TargetFiles(pid, None if ticks is None else start_unix_s(ticks), ended=OURS)
        history = read_history(raw, pid, round(now_s, 3), ProcessCode(files, programs=self._table.programs))
        yield history or self._notice("warning", "the agent's figures are damaged")

    def _notice(self, level: Literal["ok", "info", "warning"], message: str, hint: str | None = None) -> Notice:
        return Notice(t=self._clock(), pid=0, source=self.name, level=level, message=message, hint=hint)
