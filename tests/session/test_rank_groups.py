"""Which processes are the ranks of one training, on literal processes."""

from tests.session.records import process
from tuimon.session.processes import ranks_of, restarts

LAUNCHER = 50


def rank(number, pid, world_size=2, ppid=LAUNCHER, start=100.0, **more):
    facts = {"rank": number, "world_size": world_size, "ppid": ppid, "start_unix_s": start, "python": "3.11.7"}
    return process(pid, **(facts | more))


def pids(focus, *processes, training=None):
    known = {p.pid: p for p in processes}
    trained = set(known) if training is None else training
    return [p.pid for p in ranks_of(focus, known, trained)]


def test_ranks_come_in_their_order():
    assert pids(12, rank(1, 12), rank(0, 11), process(50, role="other")) == [11, 12]


def test_a_training_without_ranks_has_none():
    assert pids(11, process(11), process(12)) == []


def test_a_rank_that_has_made_no_step_yet_is_among_them():
    assert pids(11, rank(0, 11), rank(1, 12, role="other"), training={11}) == [11, 12]


def test_children_of_a_rank_inherit_its_number_but_are_none():
    worker = rank(0, 21, ppid=11, role="worker")
    compiler = rank(0, 22, ppid=11, role="other")
    shell = rank(1, 23, role="other", python=None)
    own = rank(1, 12, ppid=23)
    assert pids(11, rank(0, 11), worker, compiler, shell, own, training={11}) == [11, 12]


def test_after_a_restart_the_new_processes_are_the_ranks():
    before = [rank(n, 10 + n, ended=True, t=60.0) for n in (0, 1)]
    after = [rank(n, 30 + n, start=170.0, t=61.0) for n in (0, 1)]
    assert pids(30, *before, *after) == [30, 31]
    assert restarts(after, [*before, *after]) == {0: 1, 1: 1}


def test_a_smaller_restart_leaves_no_ghost():
    before = [rank(n, 10 + n, world_size=4, ended=True) for n in range(4)]
    after = [rank(n, 30 + n, world_size=2, start=170.0) for n in (0, 1)]
    assert pids(30, *before, *after) == [30, 31]
    same_size = [rank(n, 40 + n, world_size=4, start=170.0) for n in (0, 1)]  # two more are to come
    assert pids(40, *before, *same_size) == [40, 41]


def test_a_rank_that_dies_while_the_others_go_on_stays():
    assert pids(11, rank(0, 11), rank(1, 12, ended=True, start=101.0)) == [11, 12]


def test_one_that_comes_back_alone_takes_its_place():
    lost, back = rank(1, 12, ended=True), rank(1, 32, start=300.0)
    assert pids(11, rank(0, 11), lost, back) == [11, 32]
    assert restarts([rank(0, 11), back], [rank(0, 11), lost, back]) == {1: 1}


def test_when_all_have_ended_all_are_shown():
    assert pids(11, rank(0, 11, ended=True), rank(1, 12, ended=True, start=130.0)) == [11, 12]


def test_two_trainings_in_one_command_are_apart():
    first = [rank(n, 10 + n, ppid=50) for n in (0, 1)]
    second = [rank(n, 20 + n, ppid=60) for n in (0, 1)]
    assert pids(10, *first, *second) == [10, 11]
    assert pids(20, *first, *second) == [20, 21]
    over = [
        rank(p.rank, p.pid, ppid=p.ppid, start=p.start_unix_s + n, ended=True) for n, p in enumerate(first + second)
    ]
    assert pids(10, *over) == [10, 11] and pids(20, *over) == [20, 21]
    larger = [rank(n, 30 + n, ppid=70, world_size=3) for n in range(3)]
    assert pids(30, *first, *larger) == [30, 31, 32]


def test_one_training_after_the_other_in_one_command():
    first = [rank(n, 10 + n, ppid=50, ended=True) for n in (0, 1)]
    second = [rank(n, 20 + n, ppid=60, start=200.0) for n in (0, 1)]
    assert pids(20, *first, *second) == [20, 21]
