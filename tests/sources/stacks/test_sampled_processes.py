"""Which processes are sampled, and when that is asked again."""

import pytest

from tuimon.proc.ring_facts import RingFacts
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.schedule import SampledProcesses


@pytest.fixture
def table(monkeypatch):
    table = ProcessTable(1, "r1")
    roles = {10: "trainer", 11: "trainer", 19: "child", 20: "worker", 30: "other"}
    table.publish(dict.fromkeys(roles, 5), roles)
    monkeypatch.setattr("tuimon.proc.procfs.start_ticks", lambda pid: 5)
    for pid in (10, 11):
        table.mark_trainer(pid)
    table.facts = {10: RingFacts(rank=1), 11: RingFacts(rank=0)}
    return table


def test_training_processes_by_rank_and_their_workers_before_other_children(table):
    sampled = SampledProcesses(table)
    sampled.find(0.0)
    assert (sampled.trainers, sampled.workers) == ([11, 10], [20, 19])
    assert sampled.keys == {pid: (pid, 5) for pid in (11, 10, 20, 19)}
    assert sampled.put_first(10) and not sampled.put_first(10)
    assert sampled.are_due(0.0)
    sampled.find(0.0)
    assert sampled.trainers == [10, 11]
