"""Facts that a log records once: kept, and written again where what had them could not be written."""

from __future__ import annotations

from typing import TypeVar

from msgspec import structs

from tuimon.records import (
    GPU_FACTS,
    Frame,
    Frames,
    Gpu,
    Loader,
    LoaderFacts,
    LoopStack,
    Process,
    RangePlace,
    Record,
    Stacks,
    Steps,
)

_K = TypeVar("_K")
_V = TypeVar("_V")

#: How many ended processes are kept: as many as the Session remembers.
_ENDED = 64
#: Most frames, and most ranges and thread names of a process, that are kept.
_FRAMES = 50_000
_ROWS = 1000


class _Written:
    """The facts that the file has so far."""

    def __init__(self) -> None:
        self.frames: set[int] = set()
        self.places: dict[int, set[RangePlace]] = {}
        self.names: dict[int, set[tuple[int, str]]] = {}
        self.loaders: dict[tuple[int, int], LoaderFacts] = {}
        self.gpus: dict[str, tuple[object, ...]] = {}
        self.loops: dict[int, list[LoopStack]] = {}

    def forget(self, pid: int) -> None:
        """A process has no records any more."""
        self.places.pop(pid, None)
        self.names.pop(pid, None)
        self.loops.pop(pid, None)
        for key in [key for key in self.loaders if key[0] == pid]:
            del self.loaders[key]


class Facts:
    """The latest facts of a run, and which of them the file has."""

    def __init__(self) -> None:
        self._ended: dict[int, None] = {}  # processes, the latest last
        self._frames: dict[int, Frame] = {}
        self._places: dict[int, dict[RangePlace, None]] = {}
        self._names: dict[int, dict[int, str]] = {}
        self._loaders: dict[tuple[int, int], LoaderFacts] = {}
        self._capabilities: dict[str, float] = {}
        self._loops: dict[int, list[LoopStack]] = {}
        self._written = _Written()

    def keep(self, record: Record) -> None:
        """Take up the facts of a record, whether or not it is ever written."""
        match record:
            case Process():
                self._note_end(record)
            case Frames():
                for number, frame in enumerate(record.frames, record.first):
                    if len(self._frames) < _FRAMES:
                        self._frames[number] = frame
            case Steps() if record.range_places:
                _add(self._places.setdefault(record.pid, {}), dict.fromkeys(record.range_places))
            case Stacks():
                self._keep_stacks(record)
            case Loader() if record.facts is not None:
                self._loaders[record.pid, record.number] = record.facts
            case Gpu() if record.compute_capability is not None:  # sent only now and then
                self._capabilities[record.uuid] = record.compute_capability
            case _:
                pass

    def complete(self, record: Record) -> list[Record]:
        """The record, with the facts that it needs and its file lacks, and without those that this has."""
        match record:
            case Frames():
                self._written.frames.update(range(record.first, record.first + len(record.frames)))
            case Stacks():
                whole = self._with_loop(self._with_names(record))
                return [*self._frames_of(whole), whole]
            case Steps():
                return [self._with_places(record)]
            case Loader():
                return [self._with_facts(record)]
            case Gpu():
                return [self._with_gpu_facts(record)]
            case _:
                pass
        return [record]

    def forget_written(self) -> None:
        """Write all facts again when they are next needed: the latest may not be in the file."""
        self._written = _Written()

    def _note_end(self, record: Process) -> None:
        """Drop the facts of processes that ended long ago."""
        self._ended.pop(record.pid, None)
        if record.ended:
            self._ended[record.pid] = None
        for pid in list(self._ended)[:-_ENDED]:
            del self._ended[pid]
            self._places.pop(pid, None)
            self._names.pop(pid, None)
            self._loops.pop(pid, None)
            self._written.forget(pid)
            for key in [key for key in self._loaders if key[0] == pid]:
                del self._loaders[key]

    def _keep_stacks(self, record: Stacks) -> None:
        if record.parked:
            _add(self._names.setdefault(record.pid, {}), dict(record.parked))
        if record.loop:
            self._loops[record.pid] = record.loop

    def _frames_of(self, record: Stacks) -> list[Record]:
        written = self._written.frames
        shown = {n for stack in record.stacks for n in stack.frames} | {n for s in record.loop for n in s.frames}
        new = sorted(n for n in shown if n not in written and n in self._frames)
        written.update(new)
        runs: list[list[int]] = []
        for number in new:
            if runs and runs[-1][-1] == number - 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        return [Frames(t=record.t, pid=0, first=run[0], frames=[self._frames[n] for n in run]) for run in runs]

    def _with_names(self, record: Stacks) -> Stacks:
        written = self._written.names.setdefault(record.pid, set())
        new = [row for row in self._names.get(record.pid, {}).items() if row not in written]
        written.update(new)
        return structs.replace(record, parked=new) if new != record.parked else record

    def _with_loop(self, record: Stacks) -> Stacks:
        loop = self._loops.get(record.pid, [])
        new = loop if self._written.loops.get(record.pid) != loop else []
        self._written.loops[record.pid] = loop
        return structs.replace(record, loop=new) if new != record.loop else record

    def _with_places(self, record: Steps) -> Steps:
        written = self._written.places.setdefault(record.pid, set())
        new = [place for place in self._places.get(record.pid, ()) if place not in written]
        written.update(new)
        return structs.replace(record, range_places=new) if new != record.range_places else record

    def _with_facts(self, record: Loader) -> Loader:
        key = record.pid, record.number
        facts = self._loaders.get(key)
        if facts is None:
            return record
        if self._written.loaders.get(key) == facts:
            facts = None
        else:
            self._written.loaders[key] = facts
        return structs.replace(record, facts=facts) if facts != record.facts else record

    def _with_gpu_facts(self, record: Gpu) -> Gpu:
        capability = self._capabilities.get(record.uuid)
        facts = tuple(getattr(record, name) for name in GPU_FACTS if name != "compute_capability")
        if self._written.gpus.get(record.uuid) == (*facts, capability):
            return structs.replace(record, **dict.fromkeys(GPU_FACTS))
        self._written.gpus[record.uuid] = (*facts, capability)
        return structs.replace(record, compute_capability=capability)


def _add(known: dict[_K, _V], rows: dict[_K, _V]) -> None:
    for key, value in rows.items():
        known.pop(key, None)
        known[key] = value
    while len(known) > _ROWS:
        del known[next(iter(known))]
