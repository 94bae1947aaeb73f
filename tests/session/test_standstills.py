"""Standstills folded, and read for people."""

import pytest
from msgspec import structs

from tests.session.records import steps
from tuimon.node_ids import id_on_node
from tuimon.records import Collectives, Frame, RankCollective, StackGroup, StandingProcess, Standstill
from tuimon.session.stacks.activity import standing_activity
from tuimon.session.standstills import Standstills, group_json, groups_text, odd_one, rank_list, standing_groups

TORCH = "/venv/lib/python3.11/site-packages/torch"
GATHER = [
    Frame("/me/train.py", 50, "main", "dist.barrier()", True),
    Frame(f"{TORCH}/distributed/c10d.py", 9, "barrier"),
]
BACKWARD = [
    Frame("/me/train.py", 48, "main", "loss.backward()", True),
    Frame(f"{TORCH}/_tensor.py", 626, "backward"),
    Frame(f"{TORCH}/autograd/graph.py", 825, "_engine_run_backward"),
]
FETCH = [
    Frame("/me/train.py", 44, "main", "for x in loader:", True),
    Frame(f"{TORCH}/utils/data/dataloader.py", 7, "__next__"),
]
WORKER = [Frame(f"{TORCH}/utils/data/_utils/worker.py", 3, "_worker_loop")]
READING = [*WORKER, Frame("/me/data.py", 40, "__getitem__", "file = open(self.path(index))", True)]


def taken(groups, workers=(), t=30.0, node=0, states=()):
    """A standstill of ``(frames, pids)``; the rank is the pid less 100, a worker's that of the pid less 200."""
    pids = sorted({pid for _, own in groups for pid in own} | set(dict(states)))
    return Standstill(
        t=t,
        pid=id_on_node(node, 0),
        quiet_s=18.0,
        processes=[
            StandingProcess(
                id_on_node(node, pid),
                "worker" if pid in workers else "trainer",
                pid - 200 if pid in workers else pid - 100,
                dict(states).get(pid, "waiting"),
            )
            for pid in pids
        ],
        groups=[
            StackGroup(frames, 0, [(id_on_node(node, pid), id_on_node(node, pid)) for pid in own])
            for frames, own in groups
        ],
    )


def text(record):
    return groups_text(standing_groups(record), 4)


def test_threads_that_a_record_does_not_list_count():
    record = taken([(BACKWARD, range(100, 131)), (GATHER, [131])])
    many = structs.replace(record.groups[0], more=200)
    groups = standing_groups(structs.replace(record, groups=[many, *record.groups[1:]]))
    assert [each.number for each in groups] == [1, 231]


def test_processes_have_the_pids_that_their_nodes_know():
    (group,) = standing_groups(taken([(BACKWARD, [100, 101])], node=2))
    assert group_json(group)["pids"] == [100, 101]


def test_few_that_wait_elsewhere_come_before_many():
    record = taken([(BACKWARD, range(100, 131)), (GATHER, [131])])
    assert text(record) == "rank 31 in barrier() train.py:50, 31 ranks in backward() train.py:48"
    assert odd_one(standing_groups(record)).ranks == (31,)


def test_of_two_that_wait_for_each_other_none_is_the_odd_one():
    assert odd_one(standing_groups(taken([(BACKWARD, [100]), (GATHER, [101])]))) is None


def test_a_worker_that_a_rank_waits_for_comes_first():
    record = taken([(GATHER, [100, 102, 103]), (FETCH, [101]), (READING, [301]), (WORKER, [300, 302])], {300, 301, 302})
    assert text(record) == (
        "a worker of rank 101 in open() data.py:40, rank 1 is waiting for a batch at train.py:44,"
        " 3 ranks in barrier() train.py:50"
    )


def test_busy_workers_of_ranks_that_wait_for_no_batch_are_no_cause():
    record = taken([(GATHER, [100, 102]), (BACKWARD, [101]), (READING, [301])], {301})
    assert text(record).startswith("rank 1 in backward()")


@pytest.mark.parametrize(
    ("source", "called"),
    [
        ("with open(os.path.join(a, name(b))) as file:", "open"),
        ("x = self.queue.get(timeout=5)", "get"),
        ("return f(a) + g(b)", "load"),
        ("def load(self, path):", "load"),
        ("with self.lock:", "load"),
    ],
)
def test_what_a_line_calls(source, called):
    (group,) = standing_groups(taken([([Frame("/me/data.py", 40, "load", source, True)], [100])]))
    assert group.doing == f"{called}()"


GET = [
    Frame("/me/metrics.py", 12, "write", "row = self.rows.get()", True),
    Frame("/usr/lib/python3.11/queue.py", 171, "get"),
    Frame("/usr/lib/python3.11/threading.py", 320, "wait"),
]
HAND_OVER = [Frame("/me/train.py", 30, "main", "batch = prefetched.get()", True), *GET[1:]]
GETS_MESSAGE = [
    Frame("/usr/lib/python3.11/multiprocessing/queues.py", 113, "get"),
    Frame("/usr/lib/python3.11/multiprocessing/connection.py", 257, "poll"),
    Frame("/usr/lib/python3.11/selectors.py", 415, "select"),
]
PREFETCH = [
    Frame("/me/prefetch.py", 8, "fill", "prefetched.put(load(path))", True),
    Frame("/me/prefetch.py", 20, "load", "with open(os.path.join(folder, path)) as file:", True),
]


def beside(record, *threads):
    """With further threads ``(frames, pid)``."""
    groups = [StackGroup(frames, 0, [(pid, 1000 + n)]) for n, (frames, pid) in enumerate(threads)]
    return structs.replace(record, groups=[*record.groups, *groups])


def test_threads_that_no_rank_waits_for_are_not_named():
    record = beside(taken([(BACKWARD, [100]), (READING[1:], [101])]), (GET, 100), (GET, 101), (PREFETCH, 100))
    assert text(record) == "rank 1 in open() data.py:40, rank 0 in backward() train.py:48"
    assert [(each.kind, each.number) for each in standing_groups(record)][2:] == [("thread", 1), ("idle", 2)]


def test_the_thread_that_a_rank_waits_for_comes_first_and_no_pool():
    record = beside(taken([(BACKWARD, [100, 102]), (HAND_OVER, [101])]), (GET, 101), (PREFETCH, 101), (PREFETCH, 100))
    assert text(record) == (
        "a thread of rank 1 in open() prefetch.py:20, rank 1 in get() train.py:30, 2 ranks in backward() train.py:48"
    )
    assert odd_one(standing_groups(record)).ranks == (1,)


def test_a_thread_that_fills_a_queue_from_a_loader_waits_for_its_workers():
    fills = [Frame("/me/prefetch.py", 6, "fill", "for batch in loader:", True), FETCH[1], *GETS_MESSAGE]
    record = beside(taken([(HAND_OVER, [100]), (READING, [300])], {300}), (fills, 100))
    assert text(record) == (
        "a worker of rank 100 in open() data.py:40, rank 0 in get() train.py:30,"
        " a thread of rank 0 is waiting for a batch at prefetch.py:6"
    )


def test_ranks_are_listed_in_runs():
    assert rank_list([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


def test_a_process_without_a_stack_is_told_by_its_state():
    record = taken([(GATHER, [100, 101])], states=[(102, "stopped")])
    assert text(record) == "rank 2 is stopped, 2 ranks in barrier() train.py:50"


def test_steps_end_a_standstill():
    table = Standstills()
    table.add_standstill(taken([(GATHER, [100])]), 40)
    table.note_steps(steps(30.2, {"forward": 10}, pid=100))  # of the window in which the stacks were taken
    assert table.past[-1].ended_s is None and table.since(12.0) is not None
    table.note_steps(steps(45.0, {"forward": 10}, pid=100))
    assert table.past[-1].ended_s == 45.0 and table.since(12.0) is None


def test_two_nodes_that_wait_for_each_other_stand_still_together():
    table = Standstills()
    table.add_standstill(taken([(GATHER, [100, 101])]), 40)
    table.add_standstill(taken([(GATHER, [102]), (BACKWARD, [103])], t=32.0, node=1), 40)
    assert len(table.past) == 1
    assert text(table.past[0].taken) == "rank 3 in backward() train.py:48, 3 ranks in barrier() train.py:50"
    table.add_standstill(taken([(GATHER, [102])], t=90.0, node=1), 40)
    assert len(table.past) == 2


def test_what_is_said_of_collectives_belongs_to_the_standstill_that_goes_on():
    table = Standstills()
    waits = [RankCollective(rank, "0:default_pg", 7, "all_reduce", 7) for rank in range(2)]
    table.add_collectives(Collectives(t=29.0, pid=0, ranks=waits))  # of none
    table.add_standstill(taken([(GATHER, [100, 101])]), 40)
    assert table.past[-1].stuck == []
    table.add_collectives(Collectives(t=31.0, pid=0, ranks=waits[:1]))
    table.add_collectives(Collectives(t=32.0, pid=id_on_node(1, 0), ranks=waits[1:]))
    assert [one.waiting for one in table.past[-1].stuck] == [(0, 1)]
    table.note_steps(steps(45.0, {"forward": 10}, pid=100))
    table.add_collectives(Collectives(t=46.0, pid=0, ranks=[RankCollective(2, "0:default_pg", 6, "all_reduce")]))
    assert [one.missing for one in table.past[-1].stuck] == [()]


def test_a_rank_stands_where_its_training_thread_does():
    """Main threads that look after it are beside it; of one that has ended its rank is told."""
    sleeps = [Frame("/me/train.py", 70, "main", "time.sleep(0.5)", True)]
    rows = [StandingProcess(100 + rank, "trainer", rank, tid=900 + rank) for rank in range(3)]
    rows[2] = structs.replace(rows[2], unknown="its training thread has ended")
    groups = [StackGroup(sleeps, 0, [(100, 100), (101, 101), (102, 102)])]
    groups += [StackGroup(BACKWARD, 0, [(100, 900)]), StackGroup(GATHER, 0, [(101, 901)])]
    record = Standstill(t=30.0, pid=0, quiet_s=18.0, processes=rows, groups=groups)
    assert text(record) == (
        "rank 2 has an unknown stack: its training thread has ended, rank 0 in backward() train.py:48,"
        " rank 1 in barrier() train.py:50"
    )
    assert odd_one(standing_groups(record)).ranks == (2,)


ENTERS = ("with self.lock :", "with\tself.lock:", "ok = self.lock.acquire (timeout=3)", "with self.lock as it:  # ours")
ELSEWHERE = ("without(self.lock)", "with open(path) as file:", "data = sock.recv(9)", "acquire()")


@pytest.mark.parametrize(("source", "stands"), [*((s, True) for s in ENTERS), *((s, False) for s in ELSEWHERE)])
def test_lines_that_enter_or_acquire_a_lock(source, stands):
    at = Frame("/me/train.py", 12, "load", source, True)
    assert (standing_activity([at]) == "lock") == stands
    assert (standing_activity([at, Frame("/usr/lib/python3.11/threading.py", 270, "wait")]) == "lock") == stands
    assert standing_activity([at, Frame("/usr/lib/python3.11/socket.py", 3, "recv")]) != "lock"


LONG = ("x" * 300_000, "with " + " " * 300_000 + "x y", "with " + "x:" * 150_000 + " (", "[" * 300_000)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("source", LONG)
def test_a_line_of_any_length_is_looked_through_once(source):
    """Steps that grow with the square of its length would take hours."""
    standing_activity([Frame("/me/train.py", 1, "main", source, True)])
