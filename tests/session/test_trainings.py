"""Which trainings a run has, from literal records."""

from tests.session.records import header, process, session_of, steps
from tuimon.session.ranks import training_rows, which_training

EVEN = {"data": 5, "forward": 20, "backward": 75}


def alone(number, **more):
    return process(100 + number, start_unix_s=1.7e9 + number, **more)


def rank(number, pid, ppid, **more):
    facts = {"rank": number, "world_size": 2, "ppid": ppid, "python": "3.11.7"}
    return process(pid, **(facts | more))


def trained(*processes, focus=None):
    session = session_of(header(), *processes, *(steps(1.0, EVEN, pid=p.pid) for p in processes))
    session.focus_on(focus)
    return session


def test_the_only_process_needs_no_words():
    assert which_training(trained(alone(0))).text == ""
    assert which_training(session_of(header())).text == ""


def test_processes_that_are_no_ranks_are_trainings():
    session = trained(*(alone(n) for n in range(4)), focus=102)
    assert which_training(session).text == "training 3 of 4"
    rows = training_rows(session)
    assert [(row.number, row.ranks, row.first.pid, row.in_focus) for row in rows] == [
        (n + 1, 1, 100 + n, n == 2) for n in range(4)
    ]
    assert rows[0].first.late_ms == 0 and rows[0].first.behind == 0


def test_processes_of_one_group_are_ranks():
    session = trained(*(rank(n, 10 + n, 50) for n in range(2)))
    assert (which_training(session).text, which_training(session).text_of_rank(1)) == ("2 ranks", "rank 1 of 2")
    assert len(training_rows(session)) == 1


def test_two_groups_of_one_command_are_two_trainings():
    session = trained(*(rank(n, 10 + n, 50) for n in range(2)), *(rank(n, 20 + n, 60) for n in range(2)), focus=21)
    assert which_training(session).text == "2 ranks, training 2 of 2"
    assert which_training(session).text_of_rank(1) == "rank 1 of 2, training 2 of 2"
    assert [(row.ranks, row.first.pid) for row in training_rows(session)] == [(2, 10), (2, 20)]


def test_each_of_several_launchers_with_one_rank_is_a_training_of_its_own():
    session = trained(*(rank(0, 10 + n, 50 + n, world_size=1) for n in range(3)))
    assert which_training(session).text == "training 1 of 3"


def test_one_after_the_other_only_the_one_that_goes_on_counts():
    session = trained(alone(0), alone(1), alone(2))
    session.add(alone(0, ended=True, t=2.0))
    assert which_training(session).text == "training 1 of 2"
    session.add(alone(1, ended=True, t=3.0))
    assert which_training(session).text == ""
    session.add(alone(2, ended=True, t=90.0))
    assert which_training(session).text == ""


def test_an_earlier_start_of_the_same_ranks_is_no_other_training():
    before = [rank(n, 10 + n, 50) for n in range(2)]
    session = trained(*before)
    for process_ in before:
        session.add(rank(process_.rank, process_.pid, 50, ended=True, t=2.0))
    for n in range(2):
        session.add(rank(n, 30 + n, 50, start_unix_s=1.7e9 + 60, t=3.0))
        session.add(steps(4.0, EVEN, pid=30 + n))
    assert which_training(session).text == "2 ranks"
    assert [row.first.pid for row in training_rows(session)] == [30]
