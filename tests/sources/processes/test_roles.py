"""What each process of a run is and descends from, from literal families."""

import os
import subprocess
import sys

import pytest

from tuimon.records import ProcessRole
from tuimon.sources.processes import source
from tuimon.sources.processes.roles import ProcessFacts, Variables, read_facts, roles_of, why_no_markers
from tuimon.sources.processes.source import Descendants

TRAIN = ("python", "train.py")
NONE: frozenset[int] = frozenset()


def family(*members: ProcessFacts) -> dict[int, ProcessFacts]:
    return {member.pid: member for member in members}


def python(pid: int, ppid: int, *command: str, name: str = "python", rank: int | None = None) -> ProcessFacts:
    return ProcessFacts(pid, ppid, name, command or TRAIN, True, Variables(rank=rank))


def program(pid: int, ppid: int, *command: str) -> ProcessFacts:
    return ProcessFacts(pid, ppid, command[0], command, False)


SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)")
TRACKER = ("python", "-c", "from multiprocessing.resource_tracker import main;main(4)")
SERVER = ("python", "-c", "from multiprocessing.forkserver import main; main(5, 6, [])")
COMPILER = ("python", "/x/torch/_inductor/compile_worker/__main__.py", "--workers=2")
RANKS = python(9, 1, "python", "/bin/torchrun", "train.py"), python(10, 9, rank=0), python(11, 9, rank=1)
OTHER, TRAINER, WORKER, CHILD = "other", "trainer", "worker", "child"


@pytest.mark.parametrize(
    ("members", "roles"),
    [
        ([python(10, 1)], {10: TRAINER}),
        (
            [program(10, 1, "bash", "train.sh"), program(11, 10, "uv", "run"), python(12, 11)],
            {10: OTHER, 11: OTHER, 12: TRAINER},
        ),
        # what a trainer forks bears its command line: a worker, a logger, a pool
        ([python(10, 1), python(11, 10), python(12, 10, name="pt_data_worker")], {10: TRAINER, 11: CHILD, 12: WORKER}),
        ([python(10, 1), python(11, 10, *TRACKER), python(12, 10, *SPAWNED)], {10: TRAINER, 11: OTHER, 12: CHILD}),
        ([python(10, 1), python(11, 10, *SERVER), python(12, 11, *SERVER)], {10: TRAINER, 11: OTHER, 12: CHILD}),
        (
            [python(10, 1), python(11, 10, *COMPILER), python(12, 11, *COMPILER), program(13, 10, "gcc", "-O3")],
            {10: TRAINER, 11: OTHER, 12: OTHER, 13: OTHER},
        ),
        ([*RANKS, python(13, 10, rank=0)], {9: OTHER, 10: TRAINER, 11: TRAINER, 13: CHILD}),
        ([python(10, 11), python(11, 10)], {10: OTHER, 11: OTHER}),  # parents in a circle
    ],
)
def test_roles_by_what_processes_are(members: list[ProcessFacts], roles: dict[int, ProcessRole]) -> None:
    assert roles_of(family(*members), NONE, {}) == roles


def test_a_launcher_that_waits_for_a_program_in_python_does_not_train() -> None:
    """``accelerate launch train.py`` on one device, and commands that run it: no rank, a script of its own."""
    tool, launcher = python(10, 1, "python", "/v/bin/trl", "sft"), python(11, 10, "python", "/v/bin/accelerate-launch")
    processes = family(tool, launcher, python(12, 11), python(13, 12), python(14, 12, name="pt_data_worker"))
    roles = roles_of(processes, NONE, {}, {10, 11}.__contains__)
    assert roles == {10: "other", 11: "other", 12: "trainer", 13: "child", 14: "worker"}
    assert roles_of(processes, NONE, {}, {11}.__contains__)[10] == "trainer"  # it does something itself


@pytest.mark.parametrize(
    ("members", "marked", "before", "seen", "roles"),
    [
        # a spawned process that trains is no worker, a launcher above it no trainer
        ([python(10, 1), python(11, 10, *SPAWNED)], {11}, {}, {}, {10: OTHER, 11: TRAINER}),
        ([python(10, 1)], {99}, {}, {}, {10: TRAINER}),  # that one is gone
        ([python(11, 1, name="renamed"), python(12, 1, "python", "x.py")], {12}, {11: WORKER}, {}, {11: WORKER}),
        # a learner that the program has spawned; the other one may train, too: it is sampled
        (
            [python(10, 1), python(11, 10, *SPAWNED), python(12, 10, *SPAWNED)], {}, {}, {11},
            {10: OTHER, 11: TRAINER, 12: CHILD},
        ),
        ([python(10, 1), python(11, 10, *SPAWNED)], {}, {}, {10, 11}, {10: TRAINER, 11: TRAINER}),
        (RANKS, {}, {}, {10}, {9: OTHER, 10: TRAINER, 11: TRAINER}),  # one was not seen to train yet
        # a worker that needs gradients for its items
        ([python(10, 1), python(11, 10, name="pt_data_worker")], {}, {}, {10, 11}, {10: TRAINER, 11: WORKER}),
        ([python(10, 1), python(11, 10)], {10}, {}, {11}, {10: TRAINER, 11: CHILD}),  # markers decide
        # what outlives its program does not train in its place
        ([python(11, 1, *TRACKER)], {}, {10: TRAINER, 11: OTHER}, {}, {11: OTHER}),
        (
            [python(11, 1, *SPAWNED), python(12, 1, *SPAWNED)], {}, {10: TRAINER, 11: WORKER, 12: WORKER}, {},
            {11: WORKER, 12: WORKER},
        ),
        ([python(11, 1, *SPAWNED)], {}, {10: TRAINER, 11: CHILD}, {}, {11: CHILD}),
        (
            [python(11, 1, *SPAWNED), python(12, 1, *SPAWNED)], {}, {10: TRAINER, 11: WORKER, 12: WORKER}, {12},
            {11: WORKER, 12: TRAINER},
        ),
    ],
)  # fmt: skip
def test_roles_by_markers_samples_and_the_past(members, marked, before, seen, roles) -> None:
    found = roles_of(family(*members), frozenset(marked), before, seen=frozenset(seen))
    assert {pid: found[pid] for pid in roles} == roles


STARTED_BY_US = Variables(inherits_hooks=True)


@pytest.mark.parametrize(
    ("command", "isolated"),
    [
        (("python", "-I", "train.py"), True),
        (("python", "-uE", "train.py"), True),
        (("python", "-W", "ignore", "-I", "train.py"), True),
        (("python", "-Wignore", "train.py"), False),
        (("python", "train.py", "-I"), False),
        (("python", "-m", "pkg", "-E"), False),
        (("python", "-c", "I", "-E"), False),
        (("python", "-X", "I", "train.py"), False),
        (("python",), False),
    ],
)
def test_interpreters_that_ignore_pythonpath(command: tuple[str, ...], isolated: bool) -> None:
    reason = why_no_markers(python(1, 0, *command)._replace(variables=STARTED_BY_US), "trainer", True)
    assert reason == ("started with -I or -E: it ignores PYTHONPATH" if isolated else "no torch imported yet")


def test_other_reasons_for_no_markers() -> None:
    me = python(1, 0)._replace(variables=STARTED_BY_US)
    assert why_no_markers(me, "trainer", False) == "attached: not started by tuimon"
    off = me._replace(variables=Variables(inherits_hooks=True, markers_off=True))
    assert why_no_markers(off, "trainer", True) == "switched off (--no-markers)"
    assert "without tuimon's PYTHONPATH" in (why_no_markers(python(1, 0), "trainer", True) or "")
    assert why_no_markers(me._replace(variables=None), "trainer", True) == "no torch imported yet"
    assert why_no_markers(me, "worker", True) is None
    assert why_no_markers(program(1, 0, "bash"), "other", True) is None


class Machine:
    """The processes of a machine, as pid -> parent, and of which of them the parent was read."""

    def __init__(self, parents: dict[int, int]) -> None:
        self.parents = parents
        self.read: list[int] = []

    def parent(self, pid: int) -> int | None:
        self.read.append(pid)
        return self.parents[pid]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine({1: 0, 10: 1, 11: 10, 12: 11, 50: 1, 51: 50})
    monkeypatch.setattr("tuimon.proc.procfs.pids", lambda: list(machine.parents))
    monkeypatch.setattr(source, "parent_of", machine.parent)
    return machine


def test_children_and_their_children_are_found_parents_first(machine: Machine) -> None:
    assert Descendants().find([10]) == [11, 12]


def test_tuimon_in_a_terminal_of_what_it_watches_is_none_of_the_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 11)  # 12 is its sampler
    machine.parents[13] = 10
    tree = Descendants()
    assert tree.find([10]) == [13]
    assert tree.find([10, 13]) == []


def test_a_pid_that_is_used_again_is_new(machine: Machine) -> None:
    tree = Descendants()
    tree.find([10])
    machine.parents[50] = 10  # 50 ended and came back between two calls
    assert tree.find([10, 11, 12]) == []
    tree.forget([50])
    assert tree.find([10, 11, 12]) == [50]


@pytest.mark.parametrize(
    ("value", "threads"), [("8", 8), ("4,2", 4), ("", None), ("0", None), ("-1", None), ("many", None), (None, None)]
)
def test_omp_num_threads_in_the_environment(value, threads):
    variables = variables_of({"OMP_NUM_THREADS": value})
    assert variables.omp_num_threads == threads


def test_settings_for_debugging_in_the_environment():
    assert variables_of({"CUDA_LAUNCH_BLOCKING": "1"}).debug_settings == ("launch_blocking",)
    assert variables_of({"CUDA_LAUNCH_BLOCKING": None, "TORCH_DISTRIBUTED_DEBUG": "OFF"}).debug_settings == ()


def variables_of(values):
    """Of a process that was started with these variables; None: without that one."""
    environ = {name: text for name, text in os.environ.items() if name not in values}
    environ |= {name: value for name, value in values.items() if value is not None}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun: before that its variables cannot be read
        facts = read_facts(process.pid, "python")
        process.communicate(b"\n")
    assert facts is not None
    assert facts.variables is not None
    return facts.variables
