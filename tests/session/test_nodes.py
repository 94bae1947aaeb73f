"""A run on two nodes whose processes have the same ids: what is shown is of the node in focus, rules judge all."""

from tests.session.records import by_rule, header, loop, process, session_of, steps, threads
from tuimon.diagnosis.finding import Finding
from tuimon.node_ids import id_on_node
from tuimon.records import Gpu, GpuProcess, Loader, LoaderFacts, MachineMemory, Node, Record
from tuimon.session.machines import growth_going_on
from tuimon.views.report.report import parts_of

PHASES = {"forward": 5.0, "backward": 5.0}
FIRST, SECOND = 100, id_on_node(1, 100)
MB = 1_000_000


def node(number, host, cpu_count):
    return Node(t=1.0, pid=0, number=number, host=host, cpu_count=cpu_count, state="writing", behind_s=0.0)


def rank(number, pid, t=1.0):
    yield process(pid=pid, rank=number, world_size=2, t=t)
    yield steps(t, PHASES, pid=pid)
    yield threads(t, (pid, "python", 1.0, "running"), pid=pid)
    yield MachineMemory(t=t, pid=pid - 100, window_s=5.0, total_bytes=1000 + number)
    yield Gpu(t=t, pid=pid - 100, index=0, uuid=f"GPU-{number}", name="Fake")


NODES = (header(pid=90, cpu_count=4), node(0, "n0", 4), node(1, "n1", 8))


def test_ranks_with_one_pid_are_two_trainings() -> None:
    session = session_of(*NODES, *rank(0, FIRST), *rank(1, SECOND))
    assert session.trainers() == [FIRST, SECOND]
    assert [session.over("recent").of(pid).host for pid in session.trainers()] == ["n0", "n1"]
    assert session.over("recent").of(FIRST).totals.steps == session.over("recent").of(SECOND).totals.steps == 10


def test_the_machine_is_that_of_the_rank_in_focus() -> None:
    for first, second, cores, known, uuid in ((0, 1, 4, 1000, "GPU-0"), (1, 0, 8, 1000, "GPU-0")):
        session = session_of(*NODES, *rank(first, FIRST), *rank(second, SECOND))
        focus = (FIRST, SECOND)[first]
        assert session.trainer() == focus
        assert session.nodes.of(session.focus_node).cores == cores
        assert [row.pid for row in session.over("recent").threads()] == [focus]
        assert [each.pid for each in session.over("recent").live_threads(session.focus_node)] == [focus]
        assert [row.latest.uuid for row in session.over("recent").gpus()] == [uuid]
        assert session.nodes.of(session.focus_node).latest is not None
        assert session.nodes.of(session.focus_node).latest.total_bytes == known


def test_a_rank_that_begins_to_train_is_among_the_trainings_at_once() -> None:
    session = session_of(*NODES, *rank(0, FIRST))
    assert session.trainers() == [FIRST]
    session.add(steps(2.0, PHASES, pid=SECOND))
    assert session.trainers() == [FIRST, SECOND]


def test_of_a_thousand_ranks_each_keeps_its_loader() -> None:
    session, ranks = session_of(*NODES), [id_on_node(1 + number // 8, 100 + number % 8) for number in range(1024)]
    facts = LoaderFacts("Images", "map", 2)
    for t in (1.0, 2.0):
        for pid in ranks:
            session.add(Loader(t=t, pid=pid, number=0, window_s=1.0, fetches=10, wait_ns=10**9, starts=1, facts=facts))
    assert {row.starts for pid in ranks for row in session.over("recent").of(pid).loaders} == {2}
    assert sum(len(session.over("recent").of(pid).loaders) for pid in ranks) == 1024


def test_limits_are_of_one_node() -> None:
    many = [process(pid=id_on_node(number % 2, 1000 + number), role="other", t=0.0) for number in range(1500)]
    assert len(session_of(*NODES, *many).processes()) == 1500


def judged(*records) -> dict[str, Finding]:
    windows = [rank(number, pid, float(t)) for t in range(1, 12) for number, pid in enumerate((FIRST, SECOND))]
    return by_rule(session_of(*NODES, windows, records))


def test_another_program_on_a_gpu_of_another_node_is_found_and_the_node_named() -> None:
    def shared(pid: int) -> list[Record]:
        on_it = [GpuProcess(id_on_node(1, pid), 1 << 30, 0.45), GpuProcess(SECOND, 1 << 30, 0.5)]
        records: list[Record] = [
            Gpu(t=12.0 + n, pid=id_on_node(1, 0), index=0, uuid="GPU-1", name="Fake", processes=on_it, pids=[SECOND])
            for n in range(3)
        ]
        return [process(pid=SECOND, rank=1, world_size=2, t=11.5, gpu_uuids=["GPU-1"]), *records]

    finding = judged(*shared(4711))["neighbour"]
    assert finding.headline.startswith("on n1: process 4711 takes 45 % of GPU 0")
    assert finding.evidence["host"] == "n1"
    assert "neighbour" not in judged(process(pid=id_on_node(1, 200), role="trainer", t=11.5), *shared(200))


def test_a_late_rank_on_another_node_is_named_with_its_node() -> None:
    ranks = [process(pid=pid, rank=number, world_size=2, t=1.0) for number, pid in enumerate((FIRST, SECOND))]
    early = loop(11, {"data": 5.0, "backward": 90.0}, pid=FIRST)
    late = loop(11, {"data": 40.0, "backward": 55.0}, pid=SECOND)
    finding = by_rule(session_of(*NODES, ranks, early, late))["straggler_rank"]
    assert "for rank 1 on n1, which is 35.0 ms late, mostly in data" in finding.headline
    assert finding.evidence["host"] == "n1"


def test_metrics_have_the_gpus_of_all_nodes() -> None:
    session = session_of(*NODES, *rank(0, FIRST), *rank(1, SECOND))
    found = parts_of(session.over("recent")).gpus
    assert [(gpu.host, gpu.latest.uuid) for gpu in found] == [("n0", "GPU-0"), ("n1", "GPU-1")]


def grown(sizes_mb, every_s=5.0):
    return session_of(threads(number * every_s, rss_bytes=size * MB) for number, size in enumerate(sizes_mb))


def growth(session):
    return growth_going_on(session.threads[100].held())


def test_a_process_that_grows_from_look_to_look():
    assert growth(grown([100, 120, 140, 160, 180]))[:3] == (180 * MB, 80 * MB, 4 * MB)


def test_one_that_goes_up_and_down_does_not_grow():
    assert growth(grown([100, 180, 110, 190, 150])) is None


def test_many_looks_a_second_are_thinned():
    session = grown(list(range(100, 400)), every_s=0.1)
    assert len(session.threads[100].held()) < 40
    assert round(growth(session).per_s / MB) == 10
