"""A run on two nodes whose processes have the same ids: cores, threads, GPUs and memory are of the node in focus."""

from tests.session.records import header, process, session_of, steps, threads
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.node_ids import id_on_node
from tuimon.records import Gpu, MachineMemory, Node

PHASES = {"forward": 5.0, "backward": 5.0}
FIRST, SECOND = 100, id_on_node(1, 100)


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
    assert [session.host_of(pid) for pid in session.trainers()] == ["n0", "n1"]
    assert session.step_totals(FIRST).count == session.step_totals(SECOND).count == 10


def test_the_machine_is_that_of_the_rank_in_focus() -> None:
    for first, second, cores, known, uuid in ((0, 1, 4, 1000, "GPU-0"), (1, 0, 8, 1000, "GPU-0")):
        session = session_of(*NODES, *rank(first, FIRST), *rank(second, SECOND))
        focus = (FIRST, SECOND)[first]
        assert session.trainer() == focus
        assert session.cpu_count == cores
        assert [row.pid for row in session.threads()] == [focus]
        assert [each.pid for each in session.live_threads()] == [focus]
        assert [row.latest.uuid for row in session.gpus()] == [uuid]
        assert session.machine.latest is not None
        assert session.machine.latest.total_bytes == known


def test_a_rank_that_begins_to_train_is_among_the_trainings_at_once() -> None:
    session = session_of(*NODES, *rank(0, FIRST))
    assert session.trainers() == [FIRST]
    session.add(steps(2.0, PHASES, pid=SECOND))
    assert session.trainers() == [FIRST, SECOND]


def test_limits_are_of_one_node() -> None:
    many = [process(pid=id_on_node(number % 2, 1000 + number), role="other", t=0.0) for number in range(1500)]
    assert len(session_of(*NODES, *many).processes()) == 1500


def test_a_rank_on_another_node_is_judged_by_its_own_gpus() -> None:
    session = session_of(*NODES, *rank(0, FIRST), *rank(1, SECOND))
    for number, pid in enumerate((FIRST, SECOND)):
        session.add(process(pid=pid, rank=number, world_size=2, t=2.0, gpu_uuids=[f"GPU-{number}"]))
    evidence = evidence_of(session, FIRST)
    assert [[row.latest.uuid for row in each.gpus] for each in evidence.ranks] == [["GPU-0"], ["GPU-1"]]
