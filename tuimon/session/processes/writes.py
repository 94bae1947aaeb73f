"""The bytes that a training process writes with its steps, and in how many bursts."""

from __future__ import annotations

from msgspec import Struct

#: Bytes of a window from which it is one of a burst: our choice; logs write less.
_MUCH_BYTES = 1 << 20


class Writes(Struct):
    """Sums since its first steps."""

    burst_bytes: int = 0
    steps: int = 0  # made meanwhile
    file_system: str = ""  # where most of it went, as far as known: "nfs4"
    _bursts: int = 0
    _windows: int = 0
    _quiet: int = 0  # of the windows
    _in_burst: bool = False
    _first_step: int | None = None

    def add_written(self, written_bytes: int, to: str, steps: int) -> None:
        """Fold what was written since the last record, and where; ``steps``: how many the process has made."""
        if self._first_step is None:  # part of that was written before
            self._first_step = steps
            return
        was_in_burst, self._in_burst = self._in_burst, written_bytes >= _MUCH_BYTES
        self._bursts += self._in_burst and not was_in_burst
        self._windows += 1
        self._quiet += not self._in_burst
        self.burst_bytes += written_bytes if self._in_burst else 0
        self.steps = steps - self._first_step
        self.file_system = to or self.file_system

    @property
    def bursts(self) -> int | None:
        """How many there were; None if they are too close to be told apart."""
        return self._bursts if 2 * self._quiet >= self._windows else None
