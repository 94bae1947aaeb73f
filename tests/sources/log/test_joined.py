"""The logs of one run on several nodes, read as one."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.fleet_logs import Job, write
from tests.session.records import steps, threads
from tests.sources.log.literal_log import HEADER
from tests.waiting import Clock
from tuimon.errors import NotALog, UsageError
from tuimon.node_ids import node_of, own_id
from tuimon.records import (
    Cost,
    Exit,
    Node,
    Notice,
    Process,
    Record,
    StackGroup,
    StandingProcess,
    Standstill,
    Steps,
    ThreadFaults,
    Threads,
)
from tuimon.session.session import Session
from tuimon.sources.base import Done
from tuimon.sources.log.runs import choose
from tuimon.sources.log.source import LogSource, NodeLog, Renumbering, SharedFrameIds, merged
from tuimon.sources.log.writer import log_line
from tuimon.views.run_text import nodes_text

JOB = Job(nodes=3, ranks=2, seconds=14.0, workers=1, late=3)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    write(str(folder), JOB)
    return folder


def joined(folder: Path, run: str | None = None) -> list[Record]:
    return list(LogSource(choose(str(folder), run)).read_all())


def session_of(records: list[Record]) -> Session:
    session = Session()
    for record in records:
        session.add(record)
    return session


def notices(records: list[Record], source: str) -> list[str]:
    return [each.message for each in records if isinstance(each, Notice) and each.source == source]


@pytest.mark.parametrize("faults", [[ThreadFaults(107, 5.0, 0.0)], None])
def test_a_thread_s_page_faults_are_found_by_its_id_on_any_node(faults: list[ThreadFaults] | None) -> None:
    record = threads(1.0, (107, "python", 0.5, "running"), faults=faults)
    found = Renumbering(2, SharedFrameIds()).renumbered(record, 0.0)
    assert isinstance(found, Threads) and own_id(found.threads[0].tid) == 107
    assert [each.tid for each in found.faults or ()] == [found.threads[0].tid for _ in faults or ()]


def test_all_ranks_of_all_nodes_are_there(logs: Path) -> None:
    records = joined(logs)
    session = session_of(records)
    ranks = [session.process(pid) for pid in session.trainers()]
    assert [rank.rank for rank in ranks if rank is not None] == list(range(6))
    assert [session.over("recent").of(pid).host for pid in session.trainers()][::2] == ["node000", "node001", "node002"]
    assert len({own_id(pid) for pid in session.trainers()}) == 2
    assert session.exit is not None
    assert session.exit.exit_code == 0


def test_a_thread_that_trains_is_known_by_its_id_of_the_run() -> None:
    row = StandingProcess(100, "trainer", 3, tid=107, peers=[100, 103])
    group = StackGroup([], 0, [(100, 107)])
    found = Renumbering(2, SharedFrameIds()).renumbered(
        Standstill(t=1.0, pid=0, quiet_s=20.0, processes=[row, StandingProcess(101, "trainer")], groups=[group]), 0.0
    )
    assert isinstance(found, Standstill)
    assert [process.peers and [own_id(pid) for pid in process.peers] for process in found.processes] == [
        [100, 103],
        None,
    ]
    assert found.processes[0].peers[0] == found.processes[0].pid
    assert (found.processes[0].pid, found.processes[0].tid) == found.groups[0].threads[0]
    assert found.processes[1].tid is None


def test_all_moments_of_a_record_are_on_the_clock_of_the_run() -> None:
    moments = {"first_backward_s": 10.5, "first_step_s": 10.0, "last_step_s": 10.75}
    found = Renumbering(1, SharedFrameIds()).renumbered(steps(11.0, {"forward": 100}, **moments), 100.0)
    assert isinstance(found, Steps)
    assert {name: getattr(found, name) - 100.0 for name in moments} == moments


# -- nodes that lag, stop, come late


def test_a_node_that_stops_writing_is_said(tmp_path: Path) -> None:
    write(str(tmp_path), JOB._replace(seconds=90.0, stopped_s={1: 10.0, 2: 70.0}, ranks=1))
    records = joined(tmp_path)
    states = {r.number: r.state for r in records if isinstance(r, Node)}
    assert states == {0: "ended", 1: "stopped", 2: "late"}
    session = session_of(records)
    assert session.exit is None
    assert nodes_text(session.nodes.known.values()) == "2 of 3 nodes silent for 1m20s"


def read_all(source: LogSource) -> tuple[list[Record], bool]:
    records: list[Record] = []
    reading: Iterator[Record] = iter(source.read())
    try:
        for record in reading:
            records.append(record)
    except Done:
        return records, True
    return records, False


def test_logs_are_followed_as_they_grow_and_as_nodes_join(logs: Path, tmp_path: Path) -> None:
    whole = {path.name: path.read_bytes().splitlines(keepends=True) for path in sorted(logs.iterdir())}
    first, second, _ = whole
    for name in (first, second):
        (tmp_path / name).write_bytes(b"".join(whole[name][:40]))
    clock = Clock(0.0)
    source = LogSource(choose(str(tmp_path)), follow=True, clock=clock)
    records, done = read_all(source)
    assert not done
    assert {node_of(r.pid) for r in records if isinstance(r, Process)} == {0, 1}
    for name, lines in whole.items():
        (tmp_path / name).write_bytes(b"".join(lines))
    clock.now_s = 10.0
    more, done = read_all(source)
    source.close()
    assert done
    assert {r.host for r in more if isinstance(r, Node)} == {"node000", "node001", "node002"}
    steps = [(r.pid, r.first_index, r.count) for r in [*records, *more] if isinstance(r, Steps)]
    assert sorted(steps) == sorted((r.pid, r.first_index, r.count) for r in joined(logs) if isinstance(r, Steps))


def test_the_run_ends_as_the_first_node_that_failed(tmp_path: Path) -> None:
    for path in write(str(tmp_path), JOB):
        if "node001" in path:
            lines = Path(path).read_bytes().splitlines(keepends=True)
            lines[-1] = lines[-1].replace(b'"exit_code":0', b'"exit_code":7')
            Path(path).write_bytes(b"".join(lines))
    (end,) = [r for r in joined(tmp_path) if isinstance(r, Exit)]
    assert end.exit_code == 7


# -- which run


def test_the_latest_of_several_runs_and_the_others_by_name(tmp_path: Path) -> None:
    small = JOB._replace(nodes=2, ranks=1, seconds=4.0)
    for at, name in enumerate(("one", "two")):
        for path in write(str(tmp_path), small._replace(name=name)):
            os.utime(path, (1.75e9 + 100 * at, 1.75e9 + 100 * at))
    records = joined(tmp_path)
    assert records[0].run == "two"  # type: ignore[attr-defined]  # a Header
    assert notices(records, "runs") == ["run two, of 2 in this folder; by --run NAME also one"]
    assert joined(tmp_path, "one")[0].run == "one"  # type: ignore[attr-defined]  # a Header
    with pytest.raises(NotALog, match="holds no run 'three'") as refusal:
        choose(str(tmp_path), "three")
    assert refusal.value.hint == "It has two, one"
    with pytest.raises(UsageError):
        choose(str(next(tmp_path.iterdir())), "one")


def test_two_machines_of_one_name_are_two_nodes_and_two_logs_of_one_are_one(tmp_path: Path) -> None:
    *_, path = write(str(tmp_path), JOB._replace(nodes=2, ranks=1, seconds=4.0))
    written = Path(path).read_bytes()
    assert written.count(b"node001") == 1
    Path(path).write_bytes(written.replace(b"node001", b"node000"))
    shutil.copy(path, tmp_path / "again.jsonl")
    hosts = {r.number: r.host for r in joined(tmp_path) if isinstance(r, Node)}
    assert hosts == {0: "node000", 1: "node000#2"}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[list[float], list[float]], list[NodeLog]]]:
    logs: list[NodeLog] = []

    def open_logs(*moments_of: list[float]) -> list[NodeLog]:
        for number, moments in enumerate(moments_of):
            path = tmp_path / "ab"[number]
            costs = (Cost(t=t, pid=0, cpu_ratio=0.0, sampler_cpu_ratio=0.0, rss_bytes=1) for t in moments)
            path.write_bytes(b"".join(map(log_line, (HEADER, *costs))))
            logs.append(NodeLog(str(path), number, path.name, SharedFrameIds()))
        return logs

    yield open_logs
    for log in logs:
        log.close()


def read(logs: list[NodeLog]) -> list[tuple[str, float]]:
    found = []
    for log in logs:
        log.at_end = False
    while oldest := merged(logs):
        for _, log, record in oldest:
            log.pop()
            found.append((log.label, record.t))
    return [each for each in found if each[1] != HEADER.t]


def test_a_moment_of_several_logs_is_in_the_order_of_the_logs(opened: Callable[..., list[NodeLog]]) -> None:
    logs = opened([2.0, 3.0, 3.0], [1.5, 3.0, 4.0])
    assert read(logs) == [("b", 1.5), ("a", 2.0), ("a", 3.0), ("a", 3.0), ("b", 3.0), ("b", 4.0)]


def test_a_log_keeps_its_order_though_a_record_is_dated_earlier_than_the_one_before(
    opened: Callable[..., list[NodeLog]],
) -> None:
    logs = opened([2.0, 5.0, 3.0, 6.0], [2.5, 4.0, 5.5])
    assert read(logs) == [("a", 2.0), ("b", 2.5), ("b", 4.0), ("a", 5.0), ("a", 3.0), ("b", 5.5), ("a", 6.0)]
