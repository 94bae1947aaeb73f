"""Memory history: from the agent's file to the record, and what is said when there is none."""

import json
import os
import random
from pathlib import Path

import pytest

from tests.sources.fake_agent import FakeAgent
from tests.waiting import Clock
from tuimon.agent.ring.control_words import Command
from tuimon.agent.ring.files import MEMORY, side_file
from tuimon.records import MemoryHistory, Notice, Record
from tuimon.sources import memory as memory_source
from tuimon.sources.memory import RECORDED_STEPS, MemorySource, read_history
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.source_facts import ProcessCode

USER, TORCH = "/home/me/train.py", "/usr/lib/python3/site-packages/torch/nn/modules/linear.py"
CONTENT = {
    "trigger": "asked", "device": "cpu", "steps": 5, "live_bytes": 6000, "most_bytes": 7000, "folded_bytes": 10,
    "pause_ns": 2_000_000, "order": 1, "time_ns": 5,
    "lines": [[TORCH, 134, "forward"], [USER, 7, "log"], [USER, 20, "main"]],
    "stacks": [
        {"frames": [0, 2], "bytes": 1000, "blocks": 1, "growth": 0},
        {"frames": [1, 2], "bytes": 3000, "blocks": 3, "growth": 600},
        {"frames": [0, 1, 2], "bytes": 1500, "blocks": 2, "growth": 300},
        {"frames": [], "bytes": 500, "blocks": 1, "growth": None},
    ],
}  # fmt: skip


def history(content: object) -> MemoryHistory | None:
    return read_history(json.dumps(content).encode(), 4242, 7.0, ProcessCode())


def test_stacks_are_summed_by_the_innermost_line_of_the_user() -> None:
    record = history(CONTENT)
    assert record is not None
    lines = [(line.file, line.line, line.live_bytes, line.blocks, line.growth_bytes) for line in record.lines]
    assert lines == [(USER, 7, 4500, 5, 900), (USER, 20, 1000, 1, 0), ("", 0, 500, 1, None)]
    assert (record.live_bytes, record.most_bytes, record.folded_bytes, record.pause_ms) == (6000, 7000, 10, 2.0)


def test_damaged_figures_are_no_record() -> None:
    rng = random.Random(5)
    raw = json.dumps(CONTENT).encode()
    for _ in range(2000):
        damaged = bytearray(raw)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        record = read_history(bytes(damaged), 4242, 7.0, ProcessCode())
        assert record is None or all(line.live_bytes >= 0 for line in record.lines)
    for key, value in (("live_bytes", -1), ("steps", 10**30), ("lines", [["a", -1, "f"]]), ("trigger", "x")):
        assert history({**CONTENT, key: value}) is None


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    agent = FakeAgent(tmp_path)
    monkeypatch.setattr(memory_source, "give_order", agent.give)
    return agent


def training() -> ProcessTable:
    table = ProcessTable(os.getpid(), None)
    table.note_seen(os.getpid(), "marked")
    return table


def notice(records: list[Record]) -> Notice:
    found = [record for record in records if isinstance(record, Notice)]
    assert len(found) == 1
    return found[0]


def test_a_recording_from_the_key_to_the_record(agent: FakeAgent) -> None:
    source = MemorySource(table := training(), clock=Clock())
    assert list(source.read()) == [] and agent.orders == []
    table.wants_memory = True
    assert "being recorded" in notice(list(source.read())).message
    assert agent.orders == [(os.getpid(), Command.MEMORY, RECORDED_STEPS)]
    Path(side_file(agent.path, MEMORY)).write_text(json.dumps(CONTENT))
    agent.finish()
    record, over = source.read()
    assert isinstance(record, MemoryHistory) and record.pid == os.getpid() and record.live_bytes == 6000
    assert isinstance(over, Notice) and over.level == "ok" and agent.closed
    assert not os.path.exists(side_file(agent.path, MEMORY)) and list(source.read()) == []


def test_a_recording_that_is_refused_or_does_not_begin_is_given_up_with_the_reason(agent: FakeAgent) -> None:
    source = MemorySource(table := training(), clock=Clock())
    table.wants_memory = True
    list(source.read())
    agent.fail("a profiler is on already")
    said = notice(list(source.read()))
    assert said.level == "warning" and "profiler is on" in said.message and agent.closed == 1
    table.wants_memory = True
    list(source.read())
    agent.quiet_s = 9.0
    assert list(source.read()) == []
    agent.quiet_s = 11.0
    assert "no backward pass" in notice(list(source.read())).message and agent.closed == 2


def test_with_the_option_it_records_once_and_finds_what_an_error_left(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(memory_source, "ring_path", lambda pid: agent.path)
    source = MemorySource(training(), always=True, clock=clock)
    assert list(source.read()) == []
    path = Path(side_file(agent.path, MEMORY))
    path.write_text(json.dumps({**CONTENT, "trigger": "oom", "wanted_bytes": 1 << 30}))
    (record,) = source.read()
    assert isinstance(record, MemoryHistory) and record.trigger == "oom" and record.wanted_bytes == 1 << 30
    clock.now_s += 60
    assert "being recorded" in notice(list(source.read())).message
    source.close()
    clock.now_s += 60
    assert list(source.read()) == []
