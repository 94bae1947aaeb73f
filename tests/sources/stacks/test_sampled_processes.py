"""Which processes are sampled, and when that is asked again."""

import pytest

from tuimon.proc.ring_facts import RingFacts
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.schedule import SampledProcesses


@pytest.fixture
def table():
    table = ProcessTable(1, "r1")
    roles = {10: "trainer", 11: "trainer", 20: "worker", 30: "other"}
    table.publish(dict.fromkeys(roles, 5), roles)
    table._training = frozenset({(10, 5), (11, 5)})
    table.facts = {10: RingFacts(rank=1), 11: RingFacts(rank=0)}
    return table


def test_training_processes_by_rank_and_their_workers(table):
    sampled = SampledProcesses(table)
    sampled.find(0.0)
    assert (sampled.trainers, sampled.workers) == ([11, 10], [20])
    assert sampled.keys == {pid: (pid, 5) for pid in (11, 10, 20)}
    assert sampled.put_first(10) and not sampled.put_first(10)
    assert sampled.are_due(0.0)
    sampled.find(0.0)
    assert sampled.trainers == [10, 11]


def test_they_are_found_again_when_the_table_has_changed_and_each_second(table):
    sampled = SampledProcesses(table)
    sampled.find(0.0)
    assert not sampled.are_due(0.9)
    table.publish(dict(table._start_ticks), dict(table.roles))  # the same
    assert not sampled.are_due(0.9)
    assert sampled.are_due(1.0)
    sampled.find(1.0)
    table.publish({10: 5, 20: 5}, {10: "trainer", 20: "worker"})
    assert sampled.are_due(1.0)
    sampled.find(1.0)
    assert sampled.trainers == [10]


def test_as_long_as_none_trains_they_are_found_at_every_read():
    table = ProcessTable(1, "r1")
    table.publish({10: 5}, {10: "other"})
    sampled = SampledProcesses(table)
    sampled.find(0.0)
    assert sampled.are_due(0.1)
