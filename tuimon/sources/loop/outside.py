"""How long a program was outside its training loop, which it had left: a notebook between its cells."""

from __future__ import annotations


class Outside:
    """Adds up the time from each end of a loop to the next boundary."""

    def __init__(self) -> None:
        self._since_ns: int | None = None
        self._passed_ns = 0

    @property
    def is_open(self) -> bool:
        """True if the program is outside its loop."""
        return self._since_ns is not None

    def begin(self, time_ns: int) -> None:
        """The program has left its loop."""
        self.end(time_ns)
        self._since_ns = time_ns

    def end(self, time_ns: int) -> None:
        """It has come to a boundary."""
        if self._since_ns is not None:
            self._passed_ns += max(0, time_ns - self._since_ns)
            self._since_ns = None

    def take_ns(self, until_ns: int) -> int:
        """How long it was, since the last call."""
        if self._since_ns is not None and until_ns > self._since_ns:
            self.begin(until_ns)
        passed_ns, self._passed_ns = self._passed_ns, 0
        return passed_ns
