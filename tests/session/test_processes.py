"""The processes of a run of many nodes, and which of them train."""

import pytest

from tests.session.records import extend, header, one_process, process, rank, session_of, steps, thread
from tests.state_size import size_of
from tuimon.node_ids import id_on_node
from tuimon.records import Exit, Loader, LoaderFacts, LoaderWorker
from tuimon.session.processes import RunProcesses, ranks_of, superseded
from tuimon.session.ranks import training_numbers, training_rows, which_training


def test_workers_that_a_fork_server_forks_are_those_of_its_parent() -> None:
    table, server = RunProcesses(), ["python", "-c", "from multiprocessing.forkserver import main; main(13)"]
    table.add_process(process(10))
    table.add_process(process(15, "other", ppid=10, command=server))
    for pid in (21, 22):
        table.add_process(process(pid, "worker", ppid=15, command=server))
    assert ([each.pid for each in table.workers(10)], table.workers(15)) == ([21, 22], [])
    assert table.had_workers(10)
    table.add_process(process(15, "other", ppid=1, command=server))  # its parent has ended
    table.add_process(process(21, "worker", ppid=15, command=server, ended=True))
    assert [each.pid for each in table.workers(10)] == [22]
    table.forget(22)
    assert (table.workers(10), table.had_workers(15)) == ([], False)


def test_children_of_a_fork_server_stay_those_of_its_parent_when_that_has_ended() -> None:
    table, server = RunProcesses(), ["python", "-c", "from multiprocessing.forkserver import main; main(13)"]
    table.add_process(process(10))
    table.add_process(process(15, "other", ppid=10, command=server))
    table.add_process(process(21, "child", ppid=15, command=server))
    table.add_process(process(21, "child", ppid=15, command=server, ended=True))
    table.add_process(process(10, ended=True))
    table.add_process(process(15, "other", ppid=1, command=server))
    assert [each.pid for each in table.children(10)] == [21]


def test_other_children_are_no_workers() -> None:
    table = RunProcesses()
    table.add_process(process(10))
    for pid in (11, 12):
        table.add_process(process(pid, "child", ppid=10))
    assert ([each.pid for each in table.children(10)], table.had_workers(10)) == ([11, 12], False)
    table.add_process(process(12, "worker", ppid=10))  # samples have shown torch's worker loop
    assert ([each.pid for each in table.children(10)], [each.pid for each in table.workers(10)]) == ([11], [12])
    table.add_process(process(11, "child", ppid=10, ended=True))
    assert (table.children(10), table.children(11)) == ([], [])


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

    def trained() -> set[int]:
        looks.append(len(table.known))
        return set()

    ended = 0
    for epoch in range(20):
        for worker in range(640):
            pid = id_on_node(worker % 64, 1000 + 640 * epoch + worker)
            parent = id_on_node(worker % 64, 10)
            for each in (False, True):
                for forgotten in table.add_process(process(pid, "worker", ppid=parent, ended=each), trained, 64):
                    table.forget(forgotten)
            ended += 1
    assert len(looks) <= ended / 64 + 1
    assert len(table.known) <= 64 * (64 + 1)  # as many for each node, and one more until the next look


def loader(t, number, role, *workers):
    facts = LoaderFacts(dataset="Set", kind="map", workers=len(workers))
    listed = [LoaderWorker(*worker) for worker in workers]
    return Loader(t=t, pid=100, number=number, window_s=1.0, role=role, fetches=9, facts=facts, workers=listed)


def test_a_worker_that_was_forgotten_does_not_stand_for_those_of_later_epochs():
    later = [process(202, "worker", ppid=100, t=t, ended=t > 95.0) for t in (94.0, 96.0)]
    ended = session_of(process(100), loader(1.0, 0, "train", (201, 0)), loader(95.0, 0, "train", (202, 0)), *later)
    (row,) = ended.over("recent").of(100).loaders
    assert [(worker.pid, worker.ended) for worker in row.worker_rows] == [(202, True)]


def names_of(session):
    """What the workers are called among the threads, and by their loaders: both by process."""
    of_threads = {row.pid: row.role for row in session.over("recent").threads() if row.pid != 100}
    return of_threads, {
        row.pid: row.name for found in session.over("recent").of(100).loaders for row in found.worker_rows
    }


def worker(pid, t=0.0):
    return process(pid, "worker", ppid=100, t=t), thread(t + 1, 1.0, pid=pid)


def test_a_worker_has_one_name_whoever_shows_it():
    """Found in another order than they were started in, and beside those of an evaluation."""
    session = one_process(steps(1, {"data": 1}), map(worker, (203, 201, 202, 205)))
    extend(session, loader(2.0, 3, "train", (201, 0), (202, 1), (203, 2)), loader(2.0, 4, "eval", (205, 0)))
    assert names_of(session) == ({201: "worker 0", 202: "worker 1", 203: "worker 2", 205: "eval worker 0"},) * 2
    extend(session, worker(204, 3.0), loader(4.0, 5, "train", (204, 0)))
    found, _ = names_of(session)
    assert (found[201], found[204], found[205]) == ("loader 3 worker 0", "loader 5 worker 0", "eval worker 0")
    assert {row.kind for row in session.over("recent").threads()} == {"worker"}


def test_a_loader_for_each_epoch_is_not_remembered_for_ever():
    session = one_process(steps(1, {"data": 1}))
    table, sizes = session.loaders, []
    for epoch in range(4_000):
        table.kept(100).add_record(loader(2.0, epoch, "train", (1000 + epoch, 0)))
        if epoch % 2_000 == 1_999:
            sizes.append(size_of(table))
    assert sizes[1] <= 1.1 * sizes[0]


def test_of_a_process_without_records_all_is_empty_and_nothing_is_held():
    session = session_of(header())
    steps, threads, samples = session.step_stats[7].over(), session.threads[7].latest, session.stacks[7].over()
    assert (steps.steps, threads, samples.total, session.samplers[7].series.over()) == (0, None, 0, None)
    assert not any(7 in held for held in (session.step_stats, session.threads, session.stacks, session.samplers))


EVEN = {"data": 5, "forward": 20, "backward": 75}


def alone(number, **more):
    return process(100 + number, start_unix_s=1.7e9 + number, **more)


def trained(*processes, focus=None):
    session = session_of(header(), *processes, *(steps(1.0, EVEN, pid=p.pid) for p in processes))
    session.focus_on(focus)
    return session


PAIR, OTHERS = [rank(n, 10 + n) for n in (0, 1)], [rank(n, 20 + n, ppid=60) for n in (0, 1)]


@pytest.mark.parametrize(
    ("processes", "focus", "words", "of_rank", "rows"),
    [
        ([], None, "", "", []),
        ([alone(0)], None, "", "", [(1, 100)]),
        (PAIR, None, "2 ranks", "rank 0 of 2", [(2, 10)]),
        # processes that are no ranks, two groups of one command, a launcher for each rank
        ([alone(n) for n in range(3)], 101, *["training 2 of 3"] * 2, [(1, 100), (1, 101), (1, 102)]),
        ([*PAIR, *OTHERS], 21, *[f"{of}, training 2 of 2" for of in ("2 ranks", "rank 1 of 2")], [(2, 10), (2, 20)]),
        ([rank(0, 10 + n, of=1, ppid=50 + n) for n in (0, 1)], None, *["training 1 of 2"] * 2, [(1, 10), (1, 11)]),
    ],
)
def test_which_training_is_in_focus_of_how_many(processes, focus, words, of_rank, rows):
    session = trained(*processes, focus=focus)
    assert (which_training(session), which_training(session, of_rank=True)) == (words, of_rank)
    found = training_rows(session)
    assert [(row.ranks, row.pid) for row in found] == rows
    assert [row.number for row in found if row.in_focus] == (
        [training_numbers(session).get(session.trainer(), 1)] if rows else []
    )
    assert all(row.late_ms == row.behind == 0 for row in found)


def test_once_the_run_has_ended_the_figures_of_a_training_are_of_all_of_it():
    paces = [steps(float(t), {"backward": 90.0 if t <= 60 else 10.0}, first_index=10 * t) for t in range(1, 101)]
    session = session_of(header(), alone(0), alone(1), paces)
    assert training_rows(session)[0].step_ms == pytest.approx(10.0)
    session.add(Exit(t=101.0, pid=50, exit_code=0))
    whole = session.over("whole").of(100).phases.mean_ms
    assert whole > 30.0 and training_rows(session)[0].step_ms == pytest.approx(whole)


def test_one_after_the_other_only_the_one_that_goes_on_counts():
    session = trained(alone(0), alone(1), alone(2))
    session.add(alone(0, ended=True, t=2.0))
    assert which_training(session) == "training 1 of 2"
    session.add(alone(1, ended=True, t=3.0))
    assert which_training(session) == ""
    session.add(alone(2, ended=True, t=90.0))
    assert which_training(session) == ""


# -- which processes are the ranks of one training, on literal processes


FOUR = [rank(n, 10 + n, of=4, ended=True) for n in range(4)]
SECOND = [rank(n, 20 + n, ppid=60, after_s=100) for n in (0, 1)]


def pids(focus, *processes, training=None):
    known = {p.pid: p for p in processes}
    trained = set(known) if training is None else training
    return [p.pid for p in ranks_of(focus, known, trained)]


@pytest.mark.parametrize(
    ("focus", "processes", "training", "ranks"),
    [
        (12, [rank(1, 12), rank(0, 11), process(50, role="other")], None, [11, 12]),
        (11, [process(11), process(12)], None, []),  # a training without ranks
        (11, [rank(0, 11), rank(1, 12, role="other")], {11}, [11, 12]),  # one has made no step yet
        # one dies while the others go on; all have ended
        (11, [rank(0, 11), rank(1, 12, ended=True, after_s=1)], None, [11, 12]),
        (11, [rank(0, 11, ended=True), rank(1, 12, ended=True, after_s=30)], None, [11, 12]),
        # children of a rank inherit its number: a worker, a compiler, a shell that has started a rank
        (
            11,
            [
                *(rank(0, 11), rank(0, 21, ppid=11, role="worker"), rank(0, 22, ppid=11, role="other")),
                *(rank(1, 23, role="other", python=None), rank(1, 12, ppid=23)),
            ],
            *({11}, [11, 12]),
        ),
        # a smaller restart leaves no ghost, and of one of the same size two more are to come
        (30, [*FOUR, *[rank(n, 30 + n, after_s=70) for n in (0, 1)]], None, [30, 31]),
        (40, [*FOUR, *[rank(n, 40 + n, of=4, after_s=70) for n in (0, 1)]], None, [40, 41]),
        # one training after the other in one command
        (20, [*[rank(n, 10 + n, ended=True) for n in (0, 1)], *SECOND], None, [20, 21]),
    ],
)
def test_which_processes_are_the_ranks_of_a_training(focus, processes, training, ranks):
    assert pids(focus, *processes, training=training) == ranks


def test_one_that_comes_back_alone_takes_its_place():
    lost, back = rank(1, 12, ended=True), rank(1, 32, after_s=200)
    assert pids(11, rank(0, 11), lost, back) == [11, 32]
    assert superseded([rank(0, 11), back], [rank(0, 11), lost, back]) == [lost]


def test_two_trainings_in_one_command_are_apart():
    over = [rank(p.rank, p.pid, ppid=p.ppid, after_s=n, ended=True) for n, p in enumerate(PAIR + OTHERS)]
    for both in (PAIR + OTHERS, over):
        assert pids(10, *both) == [10, 11] and pids(20, *both) == [20, 21]
    larger = [rank(n, 30 + n, ppid=70, of=3) for n in range(3)]
    assert pids(30, *PAIR, *larger) == [30, 31, 32]
