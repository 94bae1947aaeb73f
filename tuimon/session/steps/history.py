"""The history of a process's steps: the mean step of every window, and its parts."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence

from msgspec import Struct

from tuimon.records import BETWEEN, Steps
from tuimon.session.windows import HISTORY_LIMIT, shared_limit

#: The parts of a step, as the history lists them.
STACKED = ("data", "forward", "backward", "optimizer", "other")
#: Windows that a process among many holds at least: as ranks out of focus have windows of 4 s, those of four minutes.
_LEAST = 60
#: A window, packed. After STACKED: between, and waits for a core, in ms; when the
#: window began, and its first step. Without a step: zeros.
_ROW = struct.Struct(f"{len(STACKED) + 4}d")
_BETWEEN, _WAITED, _BEGIN_S, _FIRST_STEP = range(len(STACKED), len(STACKED) + 4)
_PLACES = {name: place for place, name in enumerate((*STACKED, BETWEEN))}
_DATA = _PLACES["data"]


class WindowBegin(Struct, frozen=True, gc=False):
    """When a window began, and its first step."""

    begin_s: float
    step: int


class StepHistory:
    """The mean step of each window, oldest first; bounded."""

    def __init__(self) -> None:
        self._limit = HISTORY_LIMIT
        self._means_ms = array("d")  # not a number: no step ended
        self._rows = bytearray()

    def share_room(self, processes: int) -> None:
        """So many processes have a history: from the next window on each is shorter."""
        self._limit = shared_limit(HISTORY_LIMIT, _LEAST, processes)

    def add_window(self, record: Steps, waited_ratio: float, workers_waited_ratio: float) -> None:
        """Append a window; in these shares (0..1) of it the process's threads, and its workers, waited for a core."""
        usual = record.usual
        self._means_ms.append(record.total_ns / usual / 1e6 if usual else math.nan)
        self._rows += _row(record, usual, waited_ratio, workers_waited_ratio) if usual else bytes(_ROW.size)
        gone = len(self._means_ms) - self._limit
        if gone > 0:
            del self._means_ms[:gone]
            del self._rows[: gone * _ROW.size]

    def means_ms(self) -> list[float | None]:
        """The mean step of each window; None where no step ended."""
        return [None if math.isnan(ms) else ms for ms in self._means_ms]

    def work_ms(self) -> list[float | None]:
        """``means_ms`` less what threads and workers waited for a core: others may come and go there."""
        rows = zip(self._means_ms, _ROW.iter_unpack(self._rows), strict=True)
        return [None if math.isnan(ms) else max(0.0, ms - row[_WAITED]) for ms, row in rows]

    def stacked_ms(self, between_parts: Sequence[float], last: int) -> list[tuple[float, ...] | None]:
        """The ``last`` values of ``means_ms``, each split into STACKED, among which the time between is divided too."""
        first = max(0, len(self._means_ms) - last)
        rows = zip(self._means_ms[first:], _ROW.iter_unpack(self._rows[first * _ROW.size :]), strict=True)
        return [None if math.isnan(ms) else _split(row, between_parts) for ms, row in rows]

    def marked_ms(self) -> list[tuple[float, ...] | None]:
        """``means_ms`` as markers cut them: STACKED without the time between, and that time."""
        rows = zip(self._means_ms, _ROW.iter_unpack(self._rows), strict=True)
        return [None if math.isnan(ms) else row[: _BETWEEN + 1] for ms, row in rows]

    def worked_ms(self) -> list[tuple[float, ...] | None]:
        """``marked_ms`` less what threads and workers waited for a core, from each part in proportion to its time."""
        rows = zip(self._means_ms, _ROW.iter_unpack(self._rows), strict=True)
        return [
            None if math.isnan(ms) else _scaled(row, max(0.0, 1.0 - row[_WAITED] / ms) if ms else 1.0)
            for ms, row in rows
        ]

    def begin_of(self, window: int) -> WindowBegin | None:
        """The beginning of a window of ``means_ms``; None without a step."""
        at = range(len(self._means_ms))[window]
        if math.isnan(self._means_ms[at]):
            return None
        row = _ROW.unpack_from(self._rows, at * _ROW.size)
        return WindowBegin(row[_BEGIN_S], int(row[_FIRST_STEP]))


def _row(record: Steps, usual: int, waited_ratio: float, workers_waited_ratio: float) -> bytes:
    """A window's mean step as a ``_ROW``.

    A loop that waits for its workers goes at their pace: what they wait for a core makes it wait as long for its data.
    """
    parts = [0.0] * _BEGIN_S
    data_ns, total_ns = 0, record.total_ns
    for phase in record.phases:
        place = _PLACES.get(phase.name)
        if place is not None:
            parts[place] = phase.total_ns / usual / 1e6
            if place == _DATA:
                data_ns = phase.total_ns
    waited_ns = waited_ratio * total_ns + min(data_ns, workers_waited_ratio * total_ns)
    parts[_WAITED] = int(waited_ns) / usual / 1e6
    return _ROW.pack(*parts, record.t - record.window_s, float(record.first_index))


def _scaled(row: tuple[float, ...], ratio: float) -> tuple[float, ...]:
    return tuple(ratio * ms for ms in row[: _BETWEEN + 1])


def _split(row: tuple[float, ...], between_parts: Sequence[float]) -> tuple[float, ...]:
    """STACKED, each with its part of the time between."""
    return tuple(ms + row[_BETWEEN] * part for ms, part in zip(row, between_parts, strict=False))
