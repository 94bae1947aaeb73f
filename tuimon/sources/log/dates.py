"""Leaves out records of a log whose time no neighbour confirms: one in the far future would make all others old."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from tuimon.records import Exit, Notice, Record

#: Neighbours are dated at most this much later than what came before, in seconds: records are at most 30 s apart while
#: a run is recorded, and longer pauses (a stopped monitor, files that were removed) end with several records.
_APART_S = 60.0


class Dates:
    """Passes records on, in their order; holds one that is dated far ahead until the next one shows what it is."""

    def __init__(self, t: float, written_s: Callable[[], float]) -> None:
        """``t``: of the header; ``written_s``: when the file was last written to, on the same clock."""
        self.left_out = 0
        self._written_s = written_s
        self.t = t  # of the latest record that was passed on
        self._held: Record | None = None

    def follows(self, record: Record) -> bool:
        """Whether it may be passed on at once, as nearly all may; if not, ``passed`` decides what may."""
        t = record.t
        if self._held is not None or t - self.t > _APART_S:
            return False
        self.t = max(self.t, t)
        return True

    def all_follow(self, records: Iterable[Record]) -> bool:
        """Whether all of these may be; if not, they are to be passed one by one."""
        t = self.t
        for record in records:
            if record.t > t:
                if record.t - t > _APART_S:
                    return False
                t = record.t
        if self._held is not None:
            return False
        self.t = t
        return True

    def passed(self, record: Record) -> Iterable[Record]:
        """The records that may be passed on now that this one has been read."""
        return (record,) if self.follows(record) else self._examined(record)

    def _examined(self, record: Record) -> Iterator[Record]:
        held, self._held = self._held, None
        if held is not None:
            if abs(record.t - held.t) <= _APART_S:
                self.t = held.t
                yield held
            else:
                self.left_out += 1
        if record.t - self.t <= _APART_S:
            self.t = max(self.t, record.t)
            yield record
        elif isinstance(record, Exit | Notice):  # where the disk was full, they are all that is left of hours
            possible = record.t <= self._written_s() + _APART_S
            yield record if possible else msgspec.structs.replace(record, t=self.t)
        else:
            self._held = record

    def finish(self) -> None:
        """End: nothing will confirm the date of a record that is held."""
        self.left_out += self._held is not None
        self._held = None
