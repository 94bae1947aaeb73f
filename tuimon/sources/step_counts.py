"""Counts of some steps that an agent makes while the monitor wants them: collectives, and calls at a line.

Collectives are counted while ranks wait for each other, of one rank: the lowest of the training in focus on this
machine, as all ranks usually make the same. Calls are counted while a line that reads or moves tensors takes time. Each
count delays the training a little, so it is ordered seldom, and never while the training stands still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import msgspec

from tuimon.agent.ring.control_words import Command
from tuimon.proc.ring_facts import decoded
from tuimon.records import CollectiveCount, CollectiveCounts, LineCalls, Notice, Record, StepCalls
from tuimon.sources.base import Source
from tuimon.sources.control_channel import ControlError, Request, give_order
from tuimon.sources.process_table import ProcessTable

#: Steps over which collectives are counted: few, as the recorder holds 2,000 collectives.
COUNTED_STEPS = 4
#: Seconds after which the same rank counts again: ranks may still wait, in other collectives.
_AGAIN_S = 600.0
_NAME_CHARS = 32
#: Bytes of an element, by c10's names of types; 8-bit floats have names such as Float8_e4m3fn.
_BYTES = {
    "ComplexDouble": 16, "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2,
    "Short": 2, "Byte": 1, "Char": 1, "Bool": 1,
}  # fmt: skip

#: The record of an agent's answer, from its text, the process and the time; None if it is damaged.
_Reader = Callable[[str, int, float], Record | None]
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


def read_calls(text: str, pid: int, t: float) -> StepCalls | None:
    """The record of an agent's answer; None if that is damaged."""
    lines = decoded(text, list[LineCalls])
    return StepCalls(t=t, pid=pid, lines=lines) if lines is not None else None


class CountSource(Source):
    """Orders one count at a time. If a process has no recorder of collectives, these are not ordered again."""

    name = "counts"
    period_s = 0.5

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._request: Request | None = None
        self._read: _Reader = read_counts  # its answer
        self._why = ""  # the latest reported reason why calls are not counted
        self._due_s: dict[tuple[Command, int], float] = {}  # when to ask a process again

    def read(self) -> Iterable[Record]:
        """The counts, when the agent has answered, or why calls at a line that a finding blames are not counted."""
        if self._request is None:
            self._begin(Command.COLLECTIVES, dict.fromkeys(self._table.wants_collectives, COUNTED_STEPS), read_counts)
        if self._request is None:
            self._begin(Command.CALLS, self._table.wants_calls, read_calls)
            return
        request, now_s = self._request, self._clock()
        request.poll()
        if not request.is_over and request.quiet_s <= 60.0 and self._table.suspicion is None:
            return  # it is taken back once no backward pass comes any more
        if request.is_over:
            pid, t, of_calls = request.channel.pid, round(now_s, 3), request.command is Command.CALLS
            try:
                counts, why = self._read(request.channel.text(request.result().text), pid, t), ""
            except ControlError as error:  # of calls, perhaps for a passing reason, such as a trace
                counts, why = None, f"calls at the line to blame are not counted: {error}"
            self._due_s[request.command, pid] = now_s + _AGAIN_S if of_calls or counts is not None else float("inf")
            yield from () if counts is None else (counts,)
            if of_calls and why != self._why:
                self._why = why
                yield Notice(t=t, pid=0, source=self.name, level="info" if why else "ok", message=why)
        self.close()

    def close(self) -> None:
        """Take back the order."""
        if self._request is not None:
            self._request.close()
            self._request = None

    def _begin(self, command: Command, wanted: Mapping[int, int], read: _Reader) -> None:
        """Order a count from the lowest rank of those wanted; ``wanted``: by process, the order's argument."""
        table, now_s = self._table, self._clock()
        if not wanted or table.suspicion is not None:
            return
        pid = next((pid for pid in table.by_rank(table.trainers()) if pid in wanted), None)
        if pid is None or now_s < self._due_s.get((command, pid), 0.0):
            return
        self._due_s[command, pid] = now_s + _AGAIN_S
        self._read = read
        try:
            self._request = give_order(pid, command, wanted[pid])
        except ControlError:
            return
