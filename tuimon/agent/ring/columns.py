"""Markers as columns, one for each word of their slots: what many of them have in common is compared at once."""

from functools import partial
from typing import List, NamedTuple

from .layout import SLOT_BYTES, SLOT_WORDS, Marker

_as_marker = partial(tuple.__new__, Marker)

#: The flag within a head.
FLAG_SHIFT = 16
#: The thread id within a head.
TID_SHIFT = 32
_LOW = 0xFFFF


class Columns(NamedTuple):
    """Markers in their order; ``heads``: kind, flag and thread of each in one number, as in its slot."""

    times_ns: List[int]
    heads: List[int]
    values: List[int]

    def marker(self, at: int) -> Marker:
        """One of them."""
        head = self.heads[at]
        fields = (self.times_ns[at], head & _LOW, head >> FLAG_SHIFT & _LOW, head >> TID_SHIFT, self.values[at])
        return _as_marker(fields)

    def markers(self) -> List[Marker]:
        """All of them."""
        return [self.marker(at) for at in range(len(self.times_ns))]

    def append(self, marker: Marker) -> None:
        """Add one."""
        self.times_ns.append(marker.time_ns)
        self.heads.append(head_of(marker))
        self.values.append(marker.value)

    def extend(self, others: "Columns") -> None:
        """Add these."""
        for column, more in zip(self, others):
            column.extend(more)

    def drop(self, count: int) -> None:
        """Let go of the first so many."""
        for column in self:
            del column[:count]


def columns_of(slots: bytes) -> Columns:
    """The markers that these slots hold."""
    words = whole(slots).cast("Q")
    return Columns(words[1::SLOT_WORDS].tolist(), words[2::SLOT_WORDS].tolist(), words[3::SLOT_WORDS].tolist())


def head_of(marker: Marker) -> int:
    """The head of a marker."""
    return marker.kind | marker.flag << FLAG_SHIFT | marker.tid << TID_SHIFT


def kind_of(head: int) -> int:
    """The kind of a marker with this head."""
    return head & _LOW


def sequences_of(slots: bytes) -> List[int]:
    """The sequence of each slot."""
    return whole(slots).cast("Q")[::SLOT_WORDS].tolist() if slots else []


def whole(slots: bytes) -> memoryview:
    """The slots, without one that the file's end cuts in two."""
    return memoryview(slots)[: len(slots) // SLOT_BYTES * SLOT_BYTES]
