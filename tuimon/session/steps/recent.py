"""The latest windows of a process's steps, packed: 64 ranks hold some twenty each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from tuimon.records import Steps
from tuimon.session.held_steps import HeldSteps, packed, unpacked
from tuimon.session.windows import WINDOW_S

#: Where steps are longer than the window: how many windows with a step the recent figures cover at least.
_LEAST_WINDOWS = 3
_LIMIT = 600


class RecentWindow(NamedTuple):
    """A window of steps, and what is known of the process's threads in it."""

    record: HeldSteps
    waited_ratio: float  # share (0..1) of it that they waited for a core
    cpu_ratio: float  # cores that they used


class RecentSteps:
    """The windows of the last 30 s, and of those before as many with a step as make up three."""

    __slots__ = ("_numbers", "_older", "_packed")

    def __init__(self) -> None:
        self._packed: list[bytes] = []  # of the last 30 s
        self._numbers = array("d")  # of each when it ended, how many steps it has, and the shares of a RecentWindow
        self._older: list[bytes] = []  # of those with a step

    def append(self, record: Steps, waited_ratio: float, cpu_ratio: float) -> None:
        """Append a window; drops what is too old."""
        held, numbers = self._packed, self._numbers
        held.append(packed(record))
        numbers.extend((record.t, record.usual, waited_ratio, cpu_ratio))
        since_s, most_gone = record.t - WINDOW_S, len(held) - _LIMIT
        gone = 0
        while gone < most_gone or numbers[4 * gone] < since_s:
            if numbers[4 * gone + 1]:
                self._older = [*self._older, held[gone]][-_LEAST_WINDOWS:]
            gone += 1
        if gone:
            del held[:gone], numbers[: 4 * gone]

    def windows(self) -> Iterator[RecentWindow]:
        """The windows of the last 30 s."""
        return map(RecentWindow, map(unpacked, self._packed), self._numbers[2::4], self._numbers[3::4])

    def records(self) -> Iterator[HeldSteps]:
        """The records of the last 30 s, after older ones where fewer than three of them have a step."""
        missing = _LEAST_WINDOWS - sum(map(bool, self._numbers[1::4]))
        older = self._older[-missing:] if missing > 0 else []
        return map(unpacked, (*older, *self._packed))
