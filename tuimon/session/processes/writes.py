"""The bytes that a training process writes with its steps, and in how many bursts."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

#: Bytes of a window from which it is one of a burst: our choice; logs write less.
_MUCH_BYTES = 1 << 20


class Writes(Struct):
    """Sums since its first steps."""

    burst_bytes: int = 0
    file_system: str = ""  # where most of it went, as far as known: "nfs4"
    _bursts: int = 0
    _windows: int = 0
    _quiet: int = 0  # of the windows
    _in_burst: bool = False
    _has_begun: bool = False

    def add_written(self, written_bytes: int, to: str) -> None:
        """Fold what was written since the last record, and where."""
        if not self._has_begun:  # part of that was written before
            self._has_begun = True
            return
        was_in_burst, self._in_burst = self._in_burst, written_bytes >= _MUCH_BYTES
        self._bursts += self._in_burst and not was_in_burst
        self._windows += 1
        self._quiet += not self._in_burst
        self.burst_bytes += written_bytes if self._in_burst else 0
        self.file_system = to or self.file_system

    @property
    def bursts(self) -> int | None:
        """How many there were; None if they are too close to be told apart."""
        return self._bursts if 2 * self._quiet >= self._windows else None


class Checkpoints(NamedTuple):
    """The checkpoints since the first steps: bursts of writing, and the time in which samples show the saving of one.

    Worked example: ten bursts of 1 GB, and 4 s in which checkpoints are saved. So each takes 400 ms, in which 2.5 GB
    are written a second.
    """

    number: int | None  # None: too close to be told apart
    size_bytes: int
    seconds: float
    file_system: str

    @property
    def each_bytes(self) -> float | None:
        """Bytes of one of them."""
        return self.size_bytes / self.number if self.number else None

    @property
    def each_ms(self) -> float | None:
        """How long one of them holds the training up."""
        return 1e3 * self.seconds / self.number if self.number else None

    @property
    def bytes_per_s(self) -> float:
        """Bytes written in a second of these."""
        return self.size_bytes / self.seconds
