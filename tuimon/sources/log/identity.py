"""Renumbers the records of one of several logs, so that its ids, frames and times are unique in the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import force_setattr

from tuimon.bounds import FRAMES_HELD
from tuimon.node_ids import id_on_node
from tuimon.records import (
    Exit,
    Frame,
    Frames,
    Gil,
    Gpu,
    GpuTime,
    Loader,
    LoopStack,
    MachineMemory,
    Native,
    Process,
    Record,
    StackCount,
    Stacks,
    Standstill,
    Steps,
    Threads,
    TraceTaken,
)


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
        force_setattr(record, "t", record.t + shift_s)
        for field in _MOMENTS.get(kind, ()):
            _change(record, field, lambda moment: moment + shift_s)
        if base:
            for field in ("pid", *_IDS.get(kind, ())):
                _change(record, field, lambda ids: _on_node(ids, base))
        if isinstance(record, Stacks):
            known, rows = self._frames, list[StackCount | LoopStack]([*record.stacks, *record.loop])
            for stack in rows:
                force_setattr(stack, "frames", [known.get(number, FRAMES_HELD) for number in stack.frames])
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
            force_setattr(holder, name, new(value))


def _on_node(ids: Any, base: int) -> Any:  # noqa: ANN401  (an id, or any rows that hold some beside texts)
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
