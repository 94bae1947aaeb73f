"""Hangs on literal sessions."""

import pytest
from msgspec import structs

from tests.session.records import (
    by_rule,
    frames,
    header,
    loop,
    one_process,
    process,
    rank,
    session_of,
    stacks,
    still,
    thread,
)
from tuimon.diagnosis.judging import diagnose
from tuimon.diagnosis.verdicts import fold
from tuimon.records import Collectives, Exit, Frame, Gpu, RankCollective, StackGroup, StandingProcess, Standstill

PLACE = frames(("train.py", 9, "gather", "dist.barrier()", True))


def standing(open_for_s, cpu_ratio=0.0, longest_ms=100.0, place=PLACE, stacks_seen=1, more=()):
    end, each = 9.0 + open_for_s, 20 // stacks_seen
    opened = still(end, open_for_s, "backward", first_index=80), thread(end, cpu_ratio, state="waiting")
    seen = [stacks(t, *(([n], each) for n in range(stacks_seen))) for t in range(9, int(end) + 1)]
    trained = loop(8, {"forward": 50, "backward": longest_ms - 50})
    return diagnose(one_process(place, trained, opened, seen, more))


def test_a_step_without_end_or_cpu_hangs_and_nothing_else_counts():
    (only,) = standing(120.0)
    assert (only.rule, only.severity, only.where[0].line) == ("hang", "critical", 9)
    assert only.headline == "nothing has moved for 2m00s in backward"
    assert only.evidence["longest_step_ms"] == pytest.approx(100, rel=0.01)


def test_an_error_of_its_gpu_comes_first():
    """Though that answers no more."""
    failed = Gpu(t=80.0, pid=0, index=3, uuid="GPU-3", name="H100", pids=[100], xids=[13, 79])
    lost, hang = standing(120.0, more=[failed])
    assert lost.headline == "GPU 3 has reported Xid 79: the GPU has fallen off the bus"
    assert (hang.rule, hang.headline) == ("hang", "nothing has moved for 2m00s in backward")
    (only,) = standing(120.0, more=[structs.replace(failed, pids=[])])
    assert only.rule == "hang"


@pytest.mark.trust
def test_a_training_that_has_just_gone_on_after_a_stop_does_not_hang():
    """Its threads are read before the window of steps that says so."""
    stopped = still(129.0, 120.0, "backward", first_index=80, outside_s=1.0)
    waiting = thread(129.5, 0.0, state="waiting")
    assert "hang" not in {finding.rule for finding in standing(119.0, more=[stopped, waiting])}


def test_of_other_threads_only_those_are_named_that_the_training_waits_for():
    waits = frames(
        ("train.py", 9, "main", "batch = ready.get()", True),
        ("/usr/lib/python3.11/queue.py", 171, "get"),
        ("train.py", 20, "fill", "with open(os.path.join(folder, name)) as file:", True),
        ("train.py", 30, "write", "row = rows.get()", True),
        ("train.py", 12, "main", "dist.barrier()", True),
    )

    def headline(main):
        seen = stacks(19.5, (main, 20), beside=[(101, "a", [2], 20), (102, "b", [3, 1], 20)], window_s=2.0)
        stands = still(20, 16.0, first_index=80), thread(20, 0.0, state="waiting"), seen
        (only,) = diagnose(one_process(waits, loop(8, {"between": 50, "backward": 50}), stands))
        return only.headline

    assert headline([0, 1]) == "nothing has moved for 16s: main() train.py:9, and a thread at fill() train.py:20"
    assert headline([4]) == "nothing has moved for 16s"


#: Where a training may stand: at what is given a minute, at a prompt, and at two lines in turn.
SAVES = frames(("train.py", 9, "save", "torch.save(model, path)", True))
SLEEPS = frames(("train.py", 9, "pause", "time.sleep(60)", True))
READS = frames(("train.py", 9, "load", "with open(path) as file:", True))
ASKS = frames(("train.py", 9, "ask", "if input('go on?') == 'y':", True))
DEBUGS = frames(("/usr/lib/python3.11/cmd.py", 126, "cmdloop"))
NOTEBOOK = frames(("/venv/lib/python3.11/site-packages/ipykernel/kernelapp.py", 739, "start"))
POLLS = frames(("q.py", 5, "poll", "ready()", True), ("q.py", 6, "poll", "flag.check()", True))


@pytest.mark.parametrize(
    ("open_for_s", "facts", "hangs"),
    [
        (14.0, {}, False),
        (16.0, {}, True),
        (18.0, {"longest_ms": 2000.0}, False),  # less than ten of its steps
        (22.0, {"longest_ms": 2000.0}, True),
        (120.0, {"longest_ms": 60_000.0}, False),
        (120.0, {"cpu_ratio": 0.9}, False),
        *((after_s, {"place": place}, after_s > 60) for place in (SAVES, SLEEPS, READS) for after_s in (30.0, 70.0)),
        *((300.0, {"place": prompt}, False) for prompt in (ASKS, DEBUGS, NOTEBOOK)),
        (30.0, {"place": POLLS, "stacks_seen": 2}, False),
    ],
)
def test_how_long_a_training_may_stand_where_it_does(open_for_s, facts, hangs):
    assert ("hang" in {finding.rule for finding in standing(open_for_s, **facts)}) == hangs


def test_a_file_that_nobody_reads_or_writes_is_told_once_the_stacks_are_taken():
    waiting = frames(("data.py", 40, "load", "with open(path) as file:", True))
    file = Frame("data.py", 40, "load", "with open(path) as file:", True)
    taken = Standstill(
        t=30.0, pid=0, quiet_s=20.0, processes=[StandingProcess(100, "trainer", io_bytes_per_s=0.0)],
        groups=[StackGroup([file], 0, [(100, 100)])],
    )  # fmt: skip
    moving = Standstill(t=30.0, pid=0, quiet_s=20.0, moving=[100])
    assert "hang" not in rules_at(waiting)
    assert "hang" in rules_at(waiting, taken)
    assert "hang" not in rules_at(waiting, taken, moving)
    unmeasured = structs.replace(taken, processes=[StandingProcess(100, "trainer")])
    assert "hang" not in rules_at(waiting, unmeasured)


def rules_at(place, *more):
    return {finding.rule for finding in standing(22.0, place=place, more=more)}


ALL_REDUCE = [
    Frame("train.py", 50, "main", "dist.all_reduce(loss)", True),
    Frame("/site-packages/torch/distributed/c10d_logger.py", 83, "wrapper"),
    Frame("/site-packages/torch/distributed/distributed_c10d.py", 2700, "all_reduce"),
]
OPEN = [
    Frame("train.py", 44, "main", "for batch in loader:", True),
    Frame("/site-packages/torch/utils/data/dataloader.py", 700, "__next__"),
    Frame("data.py", 40, "read", "with open(os.path.join(folder, name)) as file:", True),
]


def ranks_standing(
    *, open_for_s=(20.0,) * 4, cpu=(0.0,) * 4, states=("waiting",) * 4, ended=(), made=40, taken=True, then=()
):
    """Four ranks, pids 100 to 103; rank 3 in ``open``, the others in a collective."""
    records = [header(), frames(("train.py", 50, "main", "dist.all_reduce(loss)", True))]
    for n, pid in enumerate(range(100, 104)):
        records += rank(n, of=4), loop((1, 2), {"forward": 25, "backward": 25}, pid=pid, count=made)
    for n, pid in enumerate(range(100, 104)):
        if n in ended:
            records.append(rank(n, of=4, ended=True, t=22.0))
            continue
        records.append(still(23.0, open_for_s[n], "backward", pid=pid, first_index=2 * made))
        records.append(thread(23.0, cpu[n], pid=pid, state=states[n]))
    if taken:
        rows = [
            StandingProcess(100 + rank, "trainer", rank, states[rank], 0.0) for rank in range(4) if rank not in ended
        ]
        groups = [
            StackGroup(ALL_REDUCE, 0, [(100 + rank, 100 + rank) for rank in range(3) if rank not in ended]),
            StackGroup(OPEN, 0, [(103, 103)] if 3 not in ended else []),
        ]
        records.append(Standstill(t=23.0, pid=0, quiet_s=20.0, processes=rows, groups=groups))
    return diagnose(session_of(records, then))


def test_the_collective_that_flight_recorders_show_stuck_is_named():
    waits = [RankCollective(rank, "0:default_pg", 1204, "all_reduce", 1204) for rank in range(3)]
    late = RankCollective(3, "0:default_pg", 1203, "all_reduce")
    (only,) = ranks_standing(then=[Collectives(t=23.5, pid=0, ranks=waits), Collectives(t=24.0, pid=0, ranks=[late])])
    assert only.headline.startswith(
        "nothing has moved in any of 4 ranks for 20s: rank 3 has not entered all_reduce #1204, in which ranks 0-2"
        " wait; rank 3 in open() data.py:40, "
    )
    assert only.evidence["collective"] == "rank 3 has not entered all_reduce #1204, in which ranks 0-2 wait"


def test_before_the_stacks_are_taken_it_is_reported_as_well():
    assert "hang" not in {finding.rule for finding in ranks_standing(taken=False)}
    (only,) = ranks_standing(taken=False, open_for_s=(26.0,) * 4)
    assert only.headline.startswith("nothing has moved in any of 4 ranks for 26s in backward")


def test_a_rank_that_was_stopped_or_has_ended_is_named():
    (stopped,) = ranks_standing(states=("waiting", "stopped", "waiting", "waiting"))
    assert "rank 1 is stopped at train.py:50, rank 3 in open() data.py:40, 2 ranks in" in stopped.headline
    (lost,) = ranks_standing(ended=(3,))
    assert "rank 3 has ended, 3 ranks in all_reduce() train.py:50" in lost.headline
    assert lost.evidence["odd_ranks"] == "3"


@pytest.mark.parametrize(
    "alive",
    [
        {"open_for_s": (20.0, 20.0, 3.0, 20.0)},  # one comes further
        {"cpu": (0.0, 0.0, 0.9, 0.0)},  # one computes: a long evaluation
        {"states": ("stopped",) * 4},  # somebody has stopped the run
        {"made": 0},  # it only starts
    ],
)
def test_no_hang_while_one_rank_moves_or_all_are_stopped(alive):
    assert "hang" not in {finding.rule for finding in ranks_standing(**alive)}


def test_a_thread_that_works_while_the_training_waits_for_a_lock_is_named_first():
    main = [Frame("train.py", 12, "step", "with self.buffer:", True)]
    writer = [Frame("io.py", 33, "flush", "socket.sendall(data)", True)]
    groups = [StackGroup(frames_of, 0, [(100, 100 + n)]) for n, frames_of in enumerate((main, writer))]
    standstill = Standstill(
        t=28.0, pid=0, quiet_s=19.0, groups=groups, processes=[StandingProcess(100, "rank", None, "waiting", 0.0)]
    )
    (found,) = standing(20.0, more=(standstill,))
    assert "a thread in sendall() io.py:33, the training in step() train.py:12" in found.headline
    assert [place.line for place in found.where] == [33, 12]


QUEUES = frames(
    ("train.py", 9, "log", "self.events.put(row)", True),
    ("/usr/lib/python3.11/queue.py", 140, "put"),
    ("/usr/lib/python3.11/queue.py", 171, "get"),
    ("/usr/lib/python3.11/threading.py", 320, "wait"),
    ("log.py", 30, "write", "row = self.events.get()", True),
    ("train.py", 12, "load", "batch = self.ready.get()", True),
    ("train.py", 15, "save", "with self.lock:", True),
    ("train.py", 18, "main", "dist.barrier()", True),
    ("/usr/lib/python3.11/multiprocessing/queues.py", 103, "get"),
    ("/usr/lib/python3.11/multiprocessing/connection.py", 395, "_recv"),
    ("make.py", 40, "produce", "queue.put(batch)", True),
)
PUTS, GETS, WRITES, POOLED = [0, 1, 3], [5, 2, 3], [4, 2, 3], [2, 3]
AT_LOCK, AT_BARRIER, RECEIVES, PRODUCES = [6], [7], [5, 8, 9], [10]


def that_waits(main, *, writer=WRITES, live=None, child=None, over=False):
    """What is said of a training that stands at ``main`` from 17 s on; a thread ended then, or a child process."""
    records = [header(), process(), QUEUES]
    records += [process(201, "child", ppid=100, ended=t == 15.0, t=t) for t in (1.0, 15.0) if child]
    living = [(108, "event-writer 2", live, 20)] if live else []
    for t in range(1, 17):
        both = [(107, "event-writer", writer, 20), *living] if t < 15 else living
        records += [*loop([t], {"between": 50, "backward": 50}), stacks(t, (main, 20), beside=both)]
        records += [stacks(t, (child, 20), pid=201)] if child and t < 15.0 else []
    records.append(thread(15.0, 0.0, state="waiting", ended=[107]))
    for t in range(17, 87):
        records += [stacks(t, (main, 20), beside=living), thread(t, 0.0, state="waiting")]
        records.append(still(t, t - 16.0, first_index=160))
    if over:
        _, findings = fold([*records, Exit(t=86.5, pid=100, exit_code=143, signal="SIGTERM")])
        return next(finding for finding in findings if finding.rule == "hang")
    return by_rule(session_of(*records))["hang"]


@pytest.mark.parametrize(
    ("main", "how"),
    [
        (AT_BARRIER, {}),  # it waits for ranks
        (RECEIVES, {}),  # for a process
        (PUTS, {"live": WRITES}),  # another one empties that queue
        (PUTS, {"writer": POOLED}),  # of a pool: no code of the user's
    ],
)
def test_threads_that_have_ended_and_that_nobody_misses_are_not_named(main, how):
    assert "has ended" not in that_waits(main, **how).headline


@pytest.mark.parametrize(
    ("main", "how", "said", "line"),
    [
        (PUTS, {}, "its queue is full, and thread event-writer has ended, last seen in write() log.py:30", 30),
        (GETS, {}, "its queue is empty, and thread event-writer has ended, last seen in write() log.py:30", 30),
        (AT_LOCK, {}, "thread event-writer has ended, last seen in write() log.py:30", 30),
        (
            *(RECEIVES, {"child": PRODUCES}),
            *("its queue is empty, and process 201 has ended, last seen in produce() make.py:40", 40),
        ),
    ],
)
@pytest.mark.parametrize("over", [False, True])
def test_a_thread_or_process_that_the_training_waits_for_and_that_has_ended_is_named(main, how, said, line, over):
    finding = that_waits(main, **how, over=over)
    assert finding.headline.endswith(f": {said}")
    assert [place.line for place in finding.where][-1] == line
    assert "traceback" in finding.action
