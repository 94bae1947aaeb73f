"""The processes of a run of many nodes: whose workers they are, and how often the limits are looked at."""

from __future__ import annotations

from tests.session.records import process
from tuimon.node_ids import id_on_node
from tuimon.session.processes.run_processes import RunProcesses


def test_workers_are_those_of_their_parent_in_the_order_in_which_they_last_changed() -> None:
    table = RunProcesses()
    for pid in (10, 20):
        table.add_process(process(pid))
    for pid in (11, 12, 21):
        table.add_process(process(pid, "worker", ppid=pid // 10 * 10))
    table.add_process(process(11, "worker", ppid=10))
    assert [each.pid for each in table.workers(10)] == [12, 11]
    assert [each.pid for each in table.workers(20)] == [21]
    table.add_process(process(12, "trainer", ppid=10))  # a forked rank that has come to train
    table.forget(21)
    assert ([each.pid for each in table.workers(10)], table.workers(20)) == ([11], [])


def test_workers_of_one_epoch_follow_those_of_the_last() -> None:
    table = RunProcesses()
    table.add_process(process(10))
    for epoch in range(3):
        for pid in (20 + epoch, 30 + epoch):
            table.add_process(process(pid, "worker", ppid=10, t=4.0 * epoch))
        for pid in (20 + epoch, 30 + epoch) if epoch < 2 else ():
            table.add_process(process(pid, "worker", ppid=10, t=4.0 * epoch + 4.0, ended=True))
    table.add_process(process(40, "worker", ppid=10, t=6.0))  # beside them: of an evaluation
    assert table.successions(table.known) == [[10], [20, 21, 22], [30, 31, 32], [40]]
    assert table.lived_s(21, 0.0, 20.0) == 4.0
    assert table.lived_s(22, 10.0, 20.0) == 10.0


def test_of_many_nodes_the_limits_are_not_looked_at_with_each_process_that_ends() -> None:
    table, looks = RunProcesses(), []
    table.nodes = 64

    def trained() -> set[int]:
        looks.append(len(table.known))
        return set()

    ended = 0
    for epoch in range(20):
        for worker in range(640):
            pid = id_on_node(worker % 64, 1000 + 640 * epoch + worker)
            parent = id_on_node(worker % 64, 10)
            for each in (False, True):
                for forgotten in table.add_process(process(pid, "worker", ppid=parent, ended=each), trained):
                    table.forget(forgotten)
            ended += 1
    assert len(looks) <= ended / 64 + 1
    assert len(table.known) <= 64 * (64 + 1)  # as many for each node, and one more until the next look
