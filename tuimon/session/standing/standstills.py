"""Standstills of a run: what all processes were at while nothing moved, and when it went on."""

from __future__ import annotations

from collections import deque

from msgspec import Struct, field, structs

from tuimon.node_ids import node_of
from tuimon.records import Collectives, RankCollective, Standstill, Steps
from tuimon.session.standing.collectives import Stuck, stuck

#: How many are remembered, the latest.
_LIMIT = 16
#: Rows of ranks' collectives that are kept of one: a thousand ranks with several groups each.
_COLLECTIVES = 8192
#: The last boundaries of two nodes that wait for each other are at most this far apart (s): a step, and their clocks.
_TOGETHER_S = 10.0


class Past(Struct):
    """One standstill whose stacks were taken; None where it has not ended, or no step was known."""

    taken: Standstill
    step: int | None  # the last step before it, of the process in focus
    ended_s: float | None = None
    collectives: list[RankCollective] = field(default_factory=list)  # of a rank and group the latest counts

    @property
    def stuck(self) -> list[Stuck]:
        """The collectives that do not end, and who is missing in them."""
        return stuck(self.collectives)

    @property
    def since_s(self) -> float:
        """When the last thing moved before it."""
        return self.taken.t - self.taken.quiet_s


class Standstills:
    """Folds Standstill records, and the steps that end them."""

    def __init__(self) -> None:
        self.past: deque[Past] = deque(maxlen=_LIMIT)
        self.moved_s: float | None = None  # when a process last read or wrote files during one

    def add_standstill(self, record: Standstill, step: int | None) -> None:
        """Fold a record; ``step``: the last one that has ended."""
        if record.moving:
            self.moved_s = record.t
        if not record.processes:
            return
        last = self.past[-1] if self.past else None
        if last is not None and last.ended_s is None and _are_one(last.taken, record):
            last.taken = _merged(last.taken, record)
        else:
            self.past.append(Past(record, step))

    def add_collectives(self, record: Collectives) -> None:
        """Fold what was recorded of the collectives of the latest standstill."""
        if self.past and self.past[-1].ended_s is None:
            last = self.past[-1]
            last.collectives = [*last.collectives, *record.ranks][-_COLLECTIVES:]

    def note_steps(self, record: Steps) -> None:
        """Steps of one of its processes, or of one that was started since, end a standstill."""
        if not self.past or self.past[-1].ended_s is not None or not record.count:
            return
        if record.t - record.window_s / 2 > self.past[-1].taken.t:
            self.past[-1].ended_s = record.t

    def since(self, begin_s: float) -> Past | None:
        """The standstill that began then; None where its stacks have not been taken."""
        last = self.past[-1] if self.past else None
        return last if last is not None and last.ended_s is None and last.taken.t >= begin_s else None


def _are_one(one: Standstill, other: Standstill) -> bool:
    """True if two nodes stand still together: one waits for the other."""
    apart_s = abs((one.t - one.quiet_s) - (other.t - other.quiet_s))
    return apart_s < _TOGETHER_S and node_of(one.pid) != node_of(other.pid)


def _merged(one: Standstill, other: Standstill) -> Standstill:
    return structs.replace(
        one,
        quiet_s=one.quiet_s + max(0.0, other.t - one.t),
        t=max(one.t, other.t),
        processes=[*one.processes, *other.processes],
        groups=[*one.groups, *other.groups],
        folded=one.folded + other.folded,
        idle=one.idle + other.idle,
    )
