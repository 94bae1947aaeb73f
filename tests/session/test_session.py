"""Processes, threads, GPUs, notices: what a session is folded from besides steps and samples."""

from tests.session.records import frames, header, process, session_of, stacks, steps, threads
from tuimon.records import Exit, Notice
from tuimon.session.session import Session


def test_the_trainer_is_who_trains_not_who_was_launched():
    session = session_of(
        header(pid=1), process(1, "other"), process(5, "trainer", ppid=1), steps(1, {"data": 1}, pid=5)
    )
    assert session.trainer() == 5
    assert session_of(header(pid=1)).trainer() == 1
    assert Session().trainer() is None


def test_ranks_are_in_order():
    session = session_of(
        process(9, rank=0), process(5, rank=1), steps(1, {"data": 1}, pid=5), steps(1, {"data": 1}, pid=9)
    )
    assert session.trainers() == [9, 5]


def test_focus_moves_on_when_the_first_trainer_ends():
    session = session_of(process(5), process(9), steps(1, {"data": 1}, pid=5), steps(1, {"data": 1}, pid=9))
    session.add(process(5, ended=True))
    assert session.trainer() == 9


def test_threads_have_roles_and_places():
    session = session_of(
        header(),
        process(100),
        process(201, "worker", ppid=100),
        process(202, "worker", ppid=100),
        process(300, "other", ppid=100, command=["/usr/bin/bash", "x"]),
        frames(("a.py", 3, "work", "x = 1", True)),
        stacks(1, ([0], 5), pid=201),
        steps(1, {"data": 1}),
        threads(1, (300, "bash", 0.0, "waiting"), pid=300),
        threads(1, (202, "pt_data_worker", 0.9, "running"), pid=202),
        threads(1, (201, "pt_data_worker", 1.0, "running"), pid=201),
        threads(1, (100, "python", 0.5, "waiting"), (101, "pt_data_pin", 0.0, "waiting"), (102, "x", 0.0, "waiting")),
    )
    rows = session.over("recent").threads()
    assert [row.role for row in rows] == ["main", "pin-memory", "native", "worker 0", "worker 1", "bash"]
    assert rows[3].place.source == "x = 1"
    assert rows[4].place is None


def test_a_worker_that_takes_the_place_of_another_has_its_number():
    session = session_of(process(100), steps(1, {"data": 1}))
    for pid in (201, 202):
        session.add(process(pid, "worker", ppid=100))
    session.add(process(201, "worker", ppid=100, ended=True))
    session.add(process(203, "worker", ppid=100))
    for pid in (202, 203):
        session.add(threads(2, (pid, "python", 1.0, "running"), pid=pid))
    assert [row.role for row in session.over("recent").threads()] == ["worker 1", "worker 0"]
    assert len(session.over("recent").workers(100)) == 2


def test_the_last_picture_keeps_its_threads_and_workers():
    session = session_of(
        process(100),
        process(201, "worker", ppid=100),
        process(202, "worker", ppid=100),
        steps(1, {"data": 1}),
        threads(1, (100, "python", 0.5, "running")),
        threads(1, (201, "pt_data_worker", 1.0, "running"), pid=201),
        threads(1, (202, "pt_data_worker", 1.0, "running"), pid=202),
        process(202, "worker", ppid=100, ended=True, t=2.0),
    )
    assert [row.role for row in session.over("recent").threads()] == ["main", "worker 0"]
    session.add(process(201, "worker", ppid=100, ended=True, t=60.0))
    session.add(process(100, ended=True, t=61.0))
    rows = session.over("recent").threads()
    assert [(row.role, row.ended) for row in rows] == [("main", True), ("worker 0", True)]
    assert [p.pid for p in session.over("recent").workers(100)] == [201]


def test_notices_stand_until_their_source_is_well():
    session = session_of(Notice(t=1, pid=0, source="gpu", level="warning", message="no driver"))
    assert session.notices["gpu"].message == "no driver"
    session.add(Notice(t=2, pid=0, source="gpu", level="ok", message="back"))
    assert not session.notices


def test_the_end_is_kept():
    session = session_of(Exit(t=9, pid=100, exit_code=137, signal="SIGKILL"))
    assert session.exit.exit_code == 137
    assert session.now_s == 9


def test_of_workers_started_for_every_epoch_a_trainer_that_ended_had_those_of_its_last_one():
    session = session_of(process(100), steps(1, {"data": 1}))
    for epoch in range(3):
        for pid in (200 + 2 * epoch, 201 + 2 * epoch):
            session.add(process(pid, "worker", ppid=100, t=2.0 * epoch))
        for pid in (200 + 2 * epoch, 201 + 2 * epoch):
            session.add(process(pid, "worker", ppid=100, ended=True, t=2.0 * epoch + 2))
    assert session.over("recent").workers(100) == []
    session.add(process(100, ended=True, t=6.5))
    assert [worker.pid for worker in session.over("recent").workers(100)] == [204, 205]
    assert [worker.pid for worker in session.over("whole").workers(100)] == [204, 205]


def test_a_forked_rank_is_no_worker_once_it_trains():
    session = session_of(process(100), steps(1, {"data": 1}), process(201, "worker", ppid=100))
    assert session.run_processes.had_workers(100)
    session.add(process(201, "trainer", ppid=100))
    assert not session.run_processes.had_workers(100)
    session.add(process(202, "worker", ppid=100))
    session.add(process(202, "worker", ppid=100, ended=True))
    assert session.run_processes.had_workers(100) and session.over("recent").workers(100) == []
