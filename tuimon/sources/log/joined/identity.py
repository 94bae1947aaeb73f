"""Records of one of several logs, made records of the whole run: ids, frames and times that no other log has."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import force_setattr

from tuimon.node_ids import id_on_node
from tuimon.records import (
    Exit,
    Frame,
    Frames,
    Gil,
    Gpu,
    GpuTime,
    Loader,
    Process,
    Record,
    Stacks,
    Standstill,
    Steps,
    Threads,
)

#: Most different frames of a run: as many as a Session holds. All further ones have one id that no frame has.
_FRAMES = 50_000


class FrameIds:
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
                if number < _FRAMES:
                    self._ids[frame] = number
                    new.append(frame)
            ids.append(number)
        return ids, new

    def __len__(self) -> int:
        return len(self._ids)


class Identity:
    """Changes the records of one log in place: nobody else holds what has just been decoded."""

    def __init__(self, node: int, frames: FrameIds) -> None:
        """``node``: the number that tells its processes from those of other logs."""
        self._base = id_on_node(node, 0)
        self._all_frames = frames
        self._frames: dict[int, int] = {}  # ids in this log -> ids in the run

    def adopt(self, record: Record, shift_s: float) -> Record | None:
        """The record, ``shift_s`` later; None where it says nothing new."""
        force_setattr(record, "t", record.t + shift_s)
        base = self._base
        if base:
            force_setattr(record, "pid", record.pid | base)
        match record:
            case Threads() | Gil():
                if base:
                    _add_base(record.threads, "tid", base)
            case Steps():
                _shift(record, "first_backward_s", shift_s)
                _shift(record, "first_step_s", shift_s)
            case Stacks():
                self._adopt_stacks(record)
            case GpuTime():
                for exchange in record.exchanges:
                    force_setattr(exchange, "reached_s", exchange.reached_s + shift_s)
            case Frames():
                return self._with_new_frames(record)
            case _:
                if base:
                    _adopt_pids(record, base)
        return record

    def _with_new_frames(self, record: Frames) -> Frames | None:
        ids, new = self._all_frames.intern(record.frames)
        self._frames.update(enumerate(ids, record.first))
        return Frames(t=record.t, pid=0, first=len(self._all_frames) - len(new), frames=new) if new else None

    def _adopt_stacks(self, record: Stacks) -> None:
        known, base = self._frames, self._base
        for stack in record.stacks:
            force_setattr(stack, "frames", [known.get(number, _FRAMES) for number in stack.frames])
            if base:
                force_setattr(stack, "tid", stack.tid | base)
        for boundary in record.loop:
            force_setattr(boundary, "frames", [known.get(number, _FRAMES) for number in boundary.frames])
        if base and record.parked:
            force_setattr(record, "parked", [(tid | base, name) for tid, name in record.parked])


def _adopt_pids(record: Record, base: int) -> None:
    """Records that name processes beside their own."""
    match record:
        case Gpu():
            force_setattr(record, "pids", [pid | base for pid in record.pids])
            _add_base(record.processes, "pid", base)
        case Loader():
            _add_base(record.workers, "pid", base)
        case Process():
            force_setattr(record, "ppid", record.ppid | base)
        case Standstill():
            force_setattr(record, "moving", [pid | base for pid in record.moving])
            _add_base(record.processes, "pid", base)
            for group in record.groups:
                force_setattr(group, "threads", [(pid | base, tid | base) for pid, tid in group.threads])
        case Exit():
            force_setattr(record, "survivors", [pid | base for pid in record.survivors])
        case _:
            pass


def _add_base(rows: Iterable[Struct], field: str, base: int) -> None:
    for row in rows:
        force_setattr(row, field, getattr(row, field) | base)


def _shift(record: Steps, field: str, shift_s: float) -> None:
    value = getattr(record, field)
    if value is not None:
        force_setattr(record, field, value + shift_s)
