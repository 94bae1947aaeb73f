"""Which processes are sampled, and when that is asked again."""

from collections import Counter

import pytest

from tuimon.proc.ring_facts import RingFacts
from tuimon.proc.target_files import TargetFiles
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.frames.frame_ids import RawFrame
from tuimon.sources.stacks.pyspy.output import SampledThread, WindowSamples
from tuimon.sources.stacks.pyspy.recorder import Ended
from tuimon.sources.stacks.schedule import SampledProcesses
from tuimon.sources.stacks.window_records import WindowRecords


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


def test_they_are_found_again_when_the_table_has_changed_and_each_second(table):
    sampled = SampledProcesses(table)
    sampled.find(0.0)
    assert not sampled.are_due(0.9)
    table.publish(dict.fromkeys(table.roles, 5), dict(table.roles))  # the same
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


@pytest.mark.parametrize(
    ("file", "loads"), [("/v/site-packages/torch/utils/data/_utils/worker.py", True), ("/v/my/worker.py", False)]
)
def test_samples_show_which_child_is_in_torchs_worker_loop(table, file, loads):
    function = "_worker_loop" if loads else "serve"
    stack = (RawFrame("/v/train.py", 9, "main"), RawFrame(file, 300, function))
    samples = WindowSamples([SampledThread(19, "MainThread", Counter({stack: 8}))], 8)
    ended = Ended(19, 1.0, 5.0, 0.0, samples)
    list(WindowRecords(table).of_samples(ended, samples, (19, 5), TargetFiles(None), 5.0))
    assert table.seen_loading() == ({19} if loads else set())
