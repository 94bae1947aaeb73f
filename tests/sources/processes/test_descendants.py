"""Which pids are found to descend from known ones, and of which the parent is read at all."""

from __future__ import annotations

import pytest

from tuimon.sources.processes import descendants
from tuimon.sources.processes.descendants import Descendants


class Machine:
    """The processes of a machine, as pid -> parent, and of which of them the parent was read."""

    def __init__(self, parents: dict[int, int]) -> None:
        self.parents = parents
        self.read: list[int] = []

    def parent(self, pid: int) -> int | None:
        self.read.append(pid)
        return self.parents[pid]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine({1: 0, 10: 1, 11: 10, 12: 11, 50: 1, 51: 50})
    monkeypatch.setattr("tuimon.proc.procfs.pids", lambda: list(machine.parents))
    monkeypatch.setattr(descendants, "parent_of", machine.parent)
    return machine


def test_children_and_their_children_are_found_parents_first(machine: Machine) -> None:
    assert Descendants().find([10]) == [11, 12]


def test_tuimon_in_a_terminal_of_what_it_watches_is_none_of_the_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 11)  # 12 is its sampler
    machine.parents[13] = 10
    tree = Descendants()
    assert tree.find([10]) == [13]
    assert tree.find([10, 13]) == []


def test_a_pid_that_is_used_again_is_new(machine: Machine) -> None:
    tree = Descendants()
    tree.find([10])
    machine.parents[50] = 10  # 50 ended and came back between two calls
    assert tree.find([10, 11, 12]) == []
    tree.forget([50])
    assert tree.find([10, 11, 12]) == [50]
