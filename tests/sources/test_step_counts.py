"""Counts of a step: from the agent's answer to the record, and when an agent is asked."""

import json
import os
from pathlib import Path

import pytest

from tests.sources.fake_agent import FakeAgent
from tests.waiting import Clock
from tuimon.agent.ring.control_words import Command
from tuimon.records import CollectiveCount, CollectiveCounts, LineCalls, Notice, Record, StepCalls
from tuimon.sources import step_counts
from tuimon.sources.base import Suspicion
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


class Watched:
    """A source over two ranks of one training, at work in this process, on a clock that the test sets."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent, self.clock, self.pid = FakeAgent(folder), Clock(), os.getpid()
        self.table = ProcessTable(self.pid, None)
        self.table.note_seen(self.pid, "marked")
        monkeypatch.setattr(step_counts, "give_order", self.agent.give)
        self.source = CountSource(self.table, self.clock)

    def read(self, later_s: float = 0.0) -> list[Record]:
        self.clock.now_s += later_s
        return [*self.source.read()]

    def answered(self, answer: object) -> list[Record]:
        """The records of the answer to the order under way."""
        self.agent.finish(json.dumps(answer))
        return self.read()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_a_rank_is_asked_while_ranks_wait_and_not_again_for_minutes(watched: Watched) -> None:
    assert watched.read() == [] and watched.agent.orders == []  # nobody waits
    watched.table.wants_collectives = frozenset({watched.pid, 1})
    assert watched.read() == [] and watched.read() == []
    assert watched.agent.orders == [(watched.pid, Command.COLLECTIVES, COUNTED_STEPS)]
    (record,) = watched.answered(ANSWER)
    assert isinstance(record, CollectiveCounts) and record.pid == watched.pid
    assert watched.agent.closed == 1
    assert watched.read(60.0) == [] and len(watched.agent.orders) == 1
    watched.read(600.0)
    assert len(watched.agent.orders) == 2


def test_a_rank_without_a_recorder_is_asked_once(watched: Watched) -> None:
    watched.table.wants_collectives = frozenset({watched.pid})
    watched.read()
    watched.agent.fail("its torch has no flight recorder")
    assert watched.read() == []
    assert watched.read(10_000.0) == [] and len(watched.agent.orders) == 1


@pytest.mark.parametrize("why", ["stands still", "no further step"])
def test_an_order_is_taken_back_where_the_training_no_longer_goes_on(watched: Watched, why: str) -> None:
    watched.table.wants_collectives = frozenset({watched.pid})
    watched.read()
    if why == "stands still":
        watched.table.suspicion = Suspicion(0.0, ())
    else:
        watched.agent.quiet_s = 61.0
    assert watched.read() == [] and watched.agent.closed == 1
    watched.read(1000.0)
    assert len(watched.agent.orders) == (1 if why == "stands still" else 2)


def test_an_agent_that_takes_no_orders_is_no_trouble(watched: Watched) -> None:
    watched.agent.refusals = ["it is of an older tuimon"] * 2
    watched.table.wants_collectives = frozenset({watched.pid})
    assert watched.read() == [] and watched.read(1000.0) == []


def test_calls_and_collectives_are_counted_one_after_the_other(watched: Watched) -> None:
    watched.table.wants_collectives, watched.table.wants_calls = frozenset({watched.pid}), {watched.pid: 3, 1: 1}
    watched.read()
    assert isinstance(watched.answered(ANSWER)[0], CollectiveCounts)
    watched.read()
    assert watched.agent.orders == [(watched.pid, Command.COLLECTIVES, COUNTED_STEPS), (watched.pid, Command.CALLS, 3)]
    assert isinstance(watched.answered(CALLS)[0], StepCalls)
    assert watched.read(60.0) == [] and len(watched.agent.orders) == 2


def test_calls_that_are_refused_are_asked_for_again_and_the_reason_is_shown(watched: Watched) -> None:
    def refused() -> list[Record]:
        assert watched.read(600.0) == []
        watched.agent.fail("its torch is too old")
        return watched.read()

    watched.table.wants_calls = {watched.pid: 1}
    (notice,) = refused()
    assert isinstance(notice, Notice) and (notice.source, notice.level) == ("counts", "info")
    assert notice.message == "calls at the line to blame are not counted: its torch is too old"
    assert refused() == []  # for the same reason
    watched.read(600.0)
    counted, well = watched.answered(CALLS)
    assert isinstance(counted, StepCalls) and isinstance(well, Notice) and well.level == "ok"
