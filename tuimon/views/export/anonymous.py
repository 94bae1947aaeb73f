"""Records with stand-ins for all texts of the user's; numbers, times and process ids stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tuimon.diagnosis.reading import fold
from tuimon.records import (
    MORE_RANGES,
    Collectives,
    CompilerEvents,
    CountSettings,
    DiskReads,
    Exit,
    Frame,
    GilFunction,
    Gpu,
    Header,
    KeepingLine,
    LoaderFacts,
    Mark,
    MemoryLine,
    Notice,
    OptimizerFacts,
    Printed,
    Process,
    RangePlace,
    RangeTime,
    RankCollective,
    Record,
    StackCount,
    Stacks,
    StandingProcess,
    ThreadCpu,
    TracedPhase,
    TracedSync,
    TracedWait,
    TracedWork,
    TraceTaken,
    Uncaught,
)
from tuimon.views.export.stand_ins import StandIns

_KERNEL = re.compile(r"(\w+ \d+\.\d+).*")  # "Linux 6.8.0-1021-aws": the rest may be a site's own build
_PLACE = re.compile(r"(?:^(?:step|iter|iteration|epoch) )?\d+ of \d+(?:, [\d:]+ left)?$")  # as ``Printed`` has it
_Change = Callable[[StandIns, Any], object]  # from a field's value to what stands for it


def _each(change: Callable[[StandIns, str], str]) -> _Change:
    return lambda names, values: [change(names, value) for value in values]


def _range(names: StandIns, path: str) -> str:
    return path if path == MORE_RANGES else names.code(path)


def _versions(_names: StandIns, versions: dict[str, str]) -> dict[str, str]:
    return {name: _KERNEL.sub(r"\1", text) if name == "system" else text for name, text in versions.items()}


def _line_of_code(names: StandIns, place: str) -> str:
    """``/home/me/model.py:17`` with a stand-in for the file."""
    file, colon, line = place.rpartition(":")
    return f"{names.path(file)}{colon}{line}"


def _printed(_names: StandIns, place: str) -> str:
    """``450 of 1000, 00:37 left`` of ``fold of the patients: 450 of 1000, 00:37 left``."""
    known = _PLACE.search(place)
    return known[0] if known is not None else ""


def _parked(names: StandIns, threads: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(tid, names.code(name)) for tid, name in threads]


#: The fields that hold a text of the user's, and the functions that replace it. Texts that are in neither table are
#: tuimon's own words, or torch's, CUDA's and the driver's.
CHANGES: dict[type[msgspec.Struct], dict[str, _Change]] = {
    Header: {"command": StandIns.command, "host": StandIns.host, "run": StandIns.run, "versions": _versions},
    Process: {"command": StandIns.command, "markers_reason": StandIns.message, "gpu_uuids": _each(StandIns.gpu)},
    OptimizerFacts: {"name": StandIns.code, "package": StandIns.code},
    RangeTime: {"path": _range},
    DiskReads: {"mount": StandIns.path},
    Mark: {"name": StandIns.code},
    LoaderFacts: {"dataset": StandIns.code},
    StackCount: {"thread": StandIns.code},
    Stacks: {"parked": _parked},
    ThreadCpu: {"name": StandIns.code},
    Gpu: {"uuid": StandIns.gpu, "parent_uuid": StandIns.gpu},
    TraceTaken: {"file": StandIns.path},
    TracedPhase: {"name": StandIns.code},
    TracedWork: {"name": StandIns.operator, "phase": StandIns.code, "where": StandIns.code},
    TracedWait: {"what": StandIns.operator, "phase": StandIns.code, "where": StandIns.code},
    TracedSync: {"operator": StandIns.operator, "phase": StandIns.code, "where": StandIns.code},
    StandingProcess: {"unknown": StandIns.message},
    RankCollective: {"group": StandIns.code},
    Collectives: {"nccl": _each(StandIns.message)},
    Notice: {"message": StandIns.message, "hint": StandIns.message},
    Printed: {"place": _printed},
    CompilerEvents: {"reason": StandIns.code, "guarded": _line_of_code},
    Exit: {"last_line": StandIns.code},
    Uncaught: {"error": StandIns.code},
}
#: A function is named by its file.
_IN_FILES = (CompilerEvents, Exit, Frame, GilFunction, MemoryLine, RangePlace, Uncaught)
_InFile = CompilerEvents | Exit | Frame | GilFunction | MemoryLine | RangePlace | Uncaught
_SOURCES = ("source", "inside")  # of a frame or a line that allocates


def anonymous(records: Iterable[Record]) -> Iterator[Record]:
    """The records with stand-ins, each the same for the same throughout."""
    names = StandIns()
    return (_changed(record, names) for record in records)


def _changed(value: Any, names: StandIns) -> Any:  # noqa: ANN401  (a record, or what one holds)
    if isinstance(value, list | tuple):
        return type(value)(_changed(each, names) for each in value)
    if not isinstance(value, msgspec.Struct):
        return value
    changes = CHANGES.get(type(value), {})
    found: dict[str, Any] = {}
    for name in value.__struct_fields__:
        before = getattr(value, name)
        after = before
        if name in changes:
            after = changes[name](names, before) if before is not None else None
        elif isinstance(before, list | tuple | msgspec.Struct):
            after = _changed(before, names)
        if after is not before:
            found[name] = after
    if isinstance(value, _IN_FILES):
        found |= _in_file(value, names)
    elif isinstance(value, CountSettings | KeepingLine):
        found |= {"function": names.code(value.function), "source": names.code(value.source)}
    return replace(value, **found) if found else value


def _in_file(value: _InFile, names: StandIns) -> dict[str, Any]:
    found: dict[str, Any] = {"file": names.path(value.file), "function": names.function(value.function, value.file)}
    found |= {name: names.code(getattr(value, name)) for name in _SOURCES if hasattr(value, name)}
    if isinstance(value, RangePlace):
        found["path"] = _range(names, value.path)
    return found


class _Judged(NamedTuple):
    """A finding: rule, cause, severity, and of each fix its gain, estimated, at least and at most."""

    rule: str
    cause: str | None
    severity: str
    gains: tuple[tuple[float | None, ...], ...]


def verdict(records: Iterable[Record]) -> list[_Judged]:
    """The findings over a whole log, the most important first."""
    return [
        _Judged(
            finding.rule,
            finding.cause,
            finding.severity,
            tuple((fix.estimated_speedup, fix.low, fix.high) for fix in finding.fixes),
        )
        for finding in fold(records)[1]
    ]
