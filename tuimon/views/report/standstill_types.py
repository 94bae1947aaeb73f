"""The types of a standstill: which threads stood where, and which collectives did not end."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

Absent = UnsetType  # a field that may be absent


class Place(Struct):
    """A line of code."""

    file: str
    line: int
    function: str


class StandingGroup(Struct):
    """Threads with equal stacks."""

    who: str
    kind: str
    role: str
    ranks: list[int]
    pids: list[int]
    doing: str
    where: Place | None
    frames: list[Place]


class StuckCollective(Struct):
    """A collective that did not end, by torch's flight recorder: ranks in it, and ranks that had not come to it.

    ``elsewhere``: ranks in another collective of that number; ``unknown``: ranks without a recorder.
    """

    text: str
    group: str
    number: int
    name: str
    waiting: list[int]
    missing: list[int]
    elsewhere: list[int]
    unknown: list[int]


class Standstill(Struct):
    """Nothing moved; ``lasted_s`` is null where it went on to the end."""

    at_s: float
    step: int | None
    lasted_s: float | None
    taken_after_s: float
    text: str
    groups: list[StandingGroup]
    collectives: list[StuckCollective] | Absent = UNSET
