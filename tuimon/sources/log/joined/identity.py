"""Records of one of several logs, made records of the whole run: ids, frames and times that no other log has."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    MachineMemory,
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
        """``node``: the number that distinguishes its processes from those of other logs."""
        self._base = id_on_node(node, 0)
        self._all_frames = frames
        self._frames: dict[int, int] = {}  # ids in this log -> ids in the run

    def adopt(self, record: Record, shift_s: float) -> Record | None:
        """The record, ``shift_s`` later; None where it has nothing new."""
        force_setattr(record, "t", record.t + shift_s)
        kind, base = type(record), self._base
        moments, ids = _CHANGES.get(kind, (None, None))
        if moments is not None:
            moments(record, shift_s)
        if base:
            force_setattr(record, "pid", record.pid | base)
            if ids is not None:
                ids(record, base)
        if kind is Stacks:
            self._adopt_stacks(record)  # type: ignore[arg-type]  # it is one
        elif kind is Frames:
            return self._with_new_frames(record)  # type: ignore[arg-type]  # it is one
        return record

    def _with_new_frames(self, record: Frames) -> Frames | None:
        ids, new = self._all_frames.intern(record.frames)
        self._frames.update(enumerate(ids, record.first))
        return Frames(t=record.t, pid=0, first=len(self._all_frames) - len(new), frames=new) if new else None

    def _adopt_stacks(self, record: Stacks) -> None:
        known = self._frames
        for stack in record.stacks:
            force_setattr(stack, "frames", [known.get(number, _FRAMES) for number in stack.frames])
        for boundary in record.loop:
            force_setattr(boundary, "frames", [known.get(number, _FRAMES) for number in boundary.frames])


def _shift_steps(record: Steps, shift_s: float) -> None:
    if record.first_backward_s is not None:
        force_setattr(record, "first_backward_s", record.first_backward_s + shift_s)
    if record.first_step_s is not None:
        force_setattr(record, "first_step_s", record.first_step_s + shift_s)


def _shift_gpu_time(record: GpuTime, shift_s: float) -> None:
    for exchange in record.exchanges:
        force_setattr(exchange, "reached_s", exchange.reached_s + shift_s)


def _add_to_steps(record: Steps, base: int) -> None:
    if record.tid is not None:
        force_setattr(record, "tid", record.tid | base)


def _add_to_threads(record: Threads, base: int) -> None:
    for row in record.threads:
        force_setattr(row, "tid", row.tid | base)
    if record.ended:
        force_setattr(record, "ended", tuple(tid | base for tid in record.ended))


def _add_to_gil(record: Gil, base: int) -> None:
    for row in record.threads:
        force_setattr(row, "tid", row.tid | base)
    for function in record.functions:
        force_setattr(function, "tid", function.tid | base)


def _add_to_stacks(record: Stacks, base: int) -> None:
    for stack in record.stacks:
        force_setattr(stack, "tid", stack.tid | base)
    if record.parked:
        force_setattr(record, "parked", [(tid | base, name) for tid, name in record.parked])


def _add_to_gpu(record: Gpu, base: int) -> None:
    force_setattr(record, "pids", [pid | base for pid in record.pids])
    for process in record.processes:
        force_setattr(process, "pid", process.pid | base)


def _add_to_machine(record: MachineMemory, base: int) -> None:
    for process in record.placed:
        force_setattr(process, "pid", process.pid | base)


def _add_to_loader(record: Loader, base: int) -> None:
    for worker in record.workers:
        force_setattr(worker, "pid", worker.pid | base)


def _add_to_process(record: Process, base: int) -> None:
    force_setattr(record, "ppid", record.ppid | base)


def _add_to_standstill(record: Standstill, base: int) -> None:
    force_setattr(record, "moving", [pid | base for pid in record.moving])
    for process in record.processes:
        force_setattr(process, "pid", process.pid | base)
        if process.tid is not None:
            force_setattr(process, "tid", process.tid | base)
        if process.peers is not None:
            force_setattr(process, "peers", [pid | base for pid in process.peers])
    for group in record.groups:
        force_setattr(group, "threads", [(pid | base, tid | base) for pid, tid in group.threads])


def _add_to_exit(record: Exit, base: int) -> None:
    force_setattr(record, "survivors", [pid | base for pid in record.survivors])


#: Records with moments beside their own, and those that name processes or threads beside their own.
_MOMENTS: dict[type[Record], Callable[..., None]] = {Steps: _shift_steps, GpuTime: _shift_gpu_time}
_IDS: dict[type[Record], Callable[..., None]] = {
    Steps: _add_to_steps,
    Threads: _add_to_threads,
    Gil: _add_to_gil,
    Stacks: _add_to_stacks,
    Gpu: _add_to_gpu,
    Loader: _add_to_loader,
    MachineMemory: _add_to_machine,
    Process: _add_to_process,
    Standstill: _add_to_standstill,
    Exit: _add_to_exit,
}
_CHANGES = {kind: (_MOMENTS.get(kind), _IDS.get(kind)) for kind in (*_MOMENTS, *_IDS)}
