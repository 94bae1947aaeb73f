"""Collectives of a mean step, by name and size: ordered from the agent of one rank while ranks wait for each other.

All ranks of a training usually make the same collectives, so one of them is asked: the lowest of the training in focus
on this machine. It is asked seldom, as reading torch's flight recorder holds the training up for some 10 ms, and never
while the training stands still (``flight_recorders``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Annotated

import msgspec

from tuimon.agent.ring.control_words import Command
from tuimon.proc.ring_facts import decoded
from tuimon.records import CollectiveCount, CollectiveCounts, Record
from tuimon.sources.base import Source
from tuimon.sources.control_channel import ControlError, Request, give_order
from tuimon.sources.process_table import ProcessTable

#: Steps over which collectives are counted: few, as the recorder holds 2,000 collectives.
STEPS = 4
#: Seconds after which the same rank is asked again: ranks may still wait, in other collectives.
_AGAIN_S = 600.0
_NAME_CHARS = 32
#: Bytes of an element, by c10's names of types; 8-bit floats have names such as Float8_e4m3fn.
_BYTES = {
    "ComplexDouble": 16, "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2,
    "Short": 2, "Byte": 1, "Char": 1, "Bool": 1,
}  # fmt: skip

_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 50)]


class _Row(msgspec.Struct, array_like=True):
    name: str
    dtype: str
    calls: _Number
    elements: _Number
    most_elements: _Number


class _Answer(msgspec.Struct):
    steps: Annotated[int, msgspec.Meta(gt=0, lt=1 << 20)]
    pause: Annotated[float, msgspec.Meta(ge=0)]
    rows: list[_Row]


def read_counts(text: str, pid: int, t: float) -> CollectiveCounts | None:
    """The record of an agent's answer; None if that is damaged."""
    answer = decoded(text, _Answer)
    if answer is None or not answer.rows:
        return None
    counts = []
    for row in answer.rows:
        size = 1 if row.dtype.startswith("Float8") else _BYTES.get(row.dtype)
        sizes = () if size is None else (size * row.elements, size * row.most_elements)
        counts.append(CollectiveCount(row.name[:_NAME_CHARS], row.calls, *sizes))
    return CollectiveCounts(t=t, pid=pid, steps=answer.steps, collectives=counts, pause_ms=answer.pause)


class CollectiveSource(Source):
    """Counts collectives while the monitor wants them. A rank that cannot tell them is not asked again."""

    name = "collectives"
    period_s = 0.5

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._request: Request | None = None
        self._due_s: dict[int, float] = {}  # when to ask a process again

    def read(self) -> Iterable[Record]:
        """The counts, when the agent has answered. What it refuses is no news: they are one detail of a finding."""
        if self._request is None:
            self._begin()
            return
        request, now_s = self._request, self._clock()
        request.poll()
        if not request.is_over and request.quiet_s <= 60.0 and self._table.suspicion is None:
            return  # it is taken back once no backward pass comes any more
        if request.is_over:
            try:
                counts = read_counts(request.channel.text(request.result().text), request.channel.pid, round(now_s, 3))
            except ControlError:
                counts = None
            self._due_s[request.channel.pid] = now_s + _AGAIN_S if counts is not None else float("inf")
            yield from () if counts is None else (counts,)
        self.close()

    def close(self) -> None:
        """Take back the order."""
        if self._request is not None:
            self._request.close()
            self._request = None

    def _begin(self) -> None:
        table, now_s = self._table, self._clock()
        if not table.wants_collectives or table.suspicion is not None:
            return
        ranks = table.by_rank(table.trainers())
        pid = next((pid for pid in ranks if pid in table.wants_collectives), None)
        if pid is None or now_s < self._due_s.get(pid, 0.0):
            return
        self._due_s[pid] = now_s + _AGAIN_S
        try:
            self._request = give_order(pid, Command.COLLECTIVES, STEPS)
        except ControlError:
            return
