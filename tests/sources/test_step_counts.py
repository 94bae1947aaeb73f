"""Counts of a step: from the agent's answer to the record, and when an agent is asked."""

from __future__ import annotations

import json
import os

import pytest

from tests.waiting import Clock
from tuimon.agent.ring.control_words import Answer, Command, State
from tuimon.records import CollectiveCount, CollectiveCounts, LineCalls, Notice, Record, StepCalls
from tuimon.sources import step_counts
from tuimon.sources.base import Suspicion
from tuimon.sources.control_channel import ControlError
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.step_counts import COUNTED_STEPS, CountSource, read_calls, read_counts

ANSWER = {
    "steps": 4, "pause": 12.5,
    "rows": [
        ["all_reduce", "BFloat16", 12, 3000, 400], ["all_gather", "Float8_e4m3fn", 4, 40, 10], ["send", "Odd", 8, 9, 2],
    ],
}  # fmt: skip


def counts(answer: object) -> CollectiveCounts | None:
    return read_counts(json.dumps(answer), 42, 7.0)


def test_elements_become_bytes_by_their_type() -> None:
    record = counts(ANSWER)
    assert record is not None
    assert (record.pid, record.t, record.steps, record.pause_ms) == (42, 7.0, 4, 12.5)
    assert record.collectives == [
        CollectiveCount("all_reduce", 12, 6000, 800),
        CollectiveCount("all_gather", 4, 40, 10),
        CollectiveCount("send", 8),
    ]


@pytest.mark.parametrize(
    "damaged",
    [{"steps": 0}, {"rows": []}, {"rows": [["all_reduce", "Half", -1, 1, 1]]}, {"rows": [["a"]]}, {"pause": "x"}],
)
def test_a_damaged_answer_is_no_record(damaged: dict[str, object]) -> None:
    assert counts({**ANSWER, **damaged}) is None


CALLS = [["item", "/home/me/train.py", 42, 40], ["to", "/home/me/model.py", 7, 2]]


def test_calls_are_named_with_their_line() -> None:
    record = read_calls(json.dumps(CALLS), 42, 7.0)
    assert record is not None and (record.pid, record.t) == (42, 7.0)
    assert record.lines == [LineCalls("item", "/home/me/train.py", 42, 40), LineCalls("to", "/home/me/model.py", 7, 2)]
    assert read_calls("[]", 42, 7.0) == StepCalls(t=7.0, pid=42, lines=[])


@pytest.mark.parametrize("damaged", ["", "{}", '[["item", "train.py", 3]]', '[["item", "train.py", -3, 4]]', "[7]"])
def test_damaged_calls_are_no_record(damaged: str) -> None:
    assert read_calls(damaged, 42, 7.0) is None


class Agents:
    """The agents of all processes, and the one order that is under way: a channel and a request at once."""

    def __init__(self) -> None:
        self.orders: list[tuple[int, Command, int]] = []
        self.answer: str | None = json.dumps(ANSWER)  # None: it is refused
        self.is_over, self.quiet_s, self.closed = False, 0.0, 0
        self.channel, self.pid, self.command = self, 0, Command.COLLECTIVES

    def give(self, pid: int, command: Command, argument: int) -> Agents:
        self.orders.append((pid, command, argument))
        self.pid, self.command, self.is_over, self.quiet_s = pid, command, False, 0.0
        return self

    def poll(self) -> None:
        """Beat."""

    def result(self) -> Answer:
        if self.answer is None:
            raise ControlError("its torch has no flight recorder")
        return Answer(1, State.DONE, COUNTED_STEPS, 1)

    def text(self, number: int) -> str:
        return self.answer or ""

    def close(self) -> None:
        self.closed += 1


class Watched:
    """A source over two ranks of one training, at work in this process, on a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agents, self.clock, self.pid = Agents(), Clock(), os.getpid()
        self.table = ProcessTable(self.pid, None)
        self.table.note_seen(self.pid, "marked")
        monkeypatch.setattr(step_counts, "give_order", self.agents.give)
        self.source = CountSource(self.table, self.clock)

    def read(self, later_s: float = 0.0) -> list[Record]:
        self.clock.now_s += later_s
        return [*self.source.read()]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_a_rank_is_asked_while_ranks_wait_and_not_again_for_minutes(watched: Watched) -> None:
    assert watched.read() == [] and watched.agents.orders == []  # nobody waits
    watched.table.wants_collectives = frozenset({watched.pid, 1})
    assert watched.read() == [] and watched.read() == []
    assert watched.agents.orders == [(watched.pid, Command.COLLECTIVES, COUNTED_STEPS)]
    watched.agents.is_over = True
    (record,) = watched.read()
    assert isinstance(record, CollectiveCounts) and record.pid == watched.pid
    assert watched.agents.closed == 1
    assert watched.read(60.0) == [] and len(watched.agents.orders) == 1
    watched.read(600.0)
    assert len(watched.agents.orders) == 2


def test_a_rank_without_a_recorder_is_asked_once(watched: Watched) -> None:
    watched.table.wants_collectives, watched.agents.answer = frozenset({watched.pid}), None
    watched.read()
    watched.agents.is_over = True
    assert watched.read() == []
    assert watched.read(10_000.0) == [] and len(watched.agents.orders) == 1


@pytest.mark.parametrize("why", ["stands still", "no further step"])
def test_an_order_is_taken_back_where_the_training_no_longer_goes_on(watched: Watched, why: str) -> None:
    watched.table.wants_collectives = frozenset({watched.pid})
    watched.read()
    if why == "stands still":
        watched.table.suspicion = Suspicion(0.0, ())
    else:
        watched.agents.quiet_s = 61.0
    assert watched.read() == [] and watched.agents.closed == 1
    watched.read(1000.0)
    assert len(watched.agents.orders) == (1 if why == "stands still" else 2)


def test_an_agent_that_takes_no_orders_is_no_trouble(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(pid: int, command: Command, argument: int) -> Agents:
        raise ControlError("it is of an older tuimon")

    monkeypatch.setattr(step_counts, "give_order", refuses)
    watched.table.wants_collectives = frozenset({watched.pid})
    assert watched.read() == [] and watched.read(1000.0) == []


def test_calls_and_collectives_are_counted_one_after_the_other(watched: Watched) -> None:
    watched.table.wants_collectives, watched.table.wants_calls = frozenset({watched.pid}), {watched.pid: 3, 1: 1}
    watched.read()
    watched.agents.is_over = True
    assert isinstance(watched.read()[0], CollectiveCounts)
    watched.read()
    assert watched.agents.orders == [(watched.pid, Command.COLLECTIVES, COUNTED_STEPS), (watched.pid, Command.CALLS, 3)]
    watched.agents.answer, watched.agents.is_over = json.dumps(CALLS), True
    assert isinstance(watched.read()[0], StepCalls)
    assert watched.read(60.0) == [] and len(watched.agents.orders) == 2


def test_calls_that_are_refused_are_asked_for_again_and_the_reason_is_shown(watched: Watched) -> None:
    def asked(answer: str | None) -> list[Record]:
        watched.agents.answer = answer
        assert watched.read(600.0) == []
        watched.agents.is_over = True
        return watched.read()

    watched.table.wants_calls = {watched.pid: 1}
    (refused,) = asked(None)
    assert isinstance(refused, Notice) and (refused.source, refused.level) == ("counts", "info")
    assert refused.message == "calls at the line to blame are not counted: its torch has no flight recorder"
    assert asked(None) == []  # for the same reason
    counted, well = asked(json.dumps(CALLS))
    assert isinstance(counted, StepCalls) and isinstance(well, Notice) and well.level == "ok"
