"""Which pids are found to descend from known ones, and which are asked for their parent at all."""

from __future__ import annotations

import pytest

from tuimon.sources.processes import descendants
from tuimon.sources.processes.descendants import Descendants


class Machine:
    """The processes of a machine, as pid -> parent, and which of them were asked for their parent."""

    def __init__(self, parents: dict[int, int]) -> None:
        self.parents = parents
        self.asked: list[int] = []

    def parent(self, pid: int) -> int | None:
        self.asked.append(pid)
        return self.parents[pid]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine({1: 0, 10: 1, 11: 10, 12: 11, 50: 1, 51: 50})
    monkeypatch.setattr("psutil.pids", lambda: list(machine.parents))
    monkeypatch.setattr(descendants, "_parent", machine.parent)
    return machine


def test_children_and_their_children_are_found_parents_first(machine: Machine) -> None:
    assert Descendants().find([10]) == [11, 12]


def test_only_pids_that_are_new_are_asked_for_their_parent(machine: Machine) -> None:
    tree = Descendants()
    tree.find([10])
    machine.asked.clear()
    machine.parents |= {13: 12, 52: 51}
    assert tree.find([10, 11, 12]) == [13]
    assert sorted(machine.asked) == [13, 52]


def test_a_pid_that_is_used_again_is_new(machine: Machine) -> None:
    tree = Descendants()
    tree.find([10])
    machine.parents[50] = 10  # 50 ended and came back between two calls
    assert tree.find([10, 11, 12]) == []
    tree.forget([50])
    assert tree.find([10, 11, 12]) == [50]


def test_a_process_that_was_there_before_becomes_one_of_the_run(machine: Machine) -> None:
    tree = Descendants()
    tree.find([10])
    tree.forget_all()
    assert tree.find([10, 11, 12, 50]) == [51]
