"""What each process of a run is, from literal families."""

from __future__ import annotations

import pytest

from tuimon.records import ProcessRole
from tuimon.sources.processes.facts import ProcessFacts, Variables
from tuimon.sources.processes.roles import roles_of, why_no_markers

TRAIN = ("python", "train.py")
NONE: frozenset[int] = frozenset()


def family(*members: ProcessFacts) -> dict[int, ProcessFacts]:
    return {member.pid: member for member in members}


def python(pid: int, ppid: int, *command: str, name: str = "python", rank: int | None = None) -> ProcessFacts:
    return ProcessFacts(pid, ppid, name, command or TRAIN, True, Variables(rank=rank))


def program(pid: int, ppid: int, *command: str) -> ProcessFacts:
    return ProcessFacts(pid, ppid, command[0], command, False)


def test_one_python_trains() -> None:
    assert roles_of(family(python(10, 1)), NONE, {}) == {10: "trainer"}


def test_a_shell_around_it_does_not() -> None:
    processes = family(program(10, 1, "bash", "train.sh"), program(11, 10, "uv", "run"), python(12, 11))
    assert roles_of(processes, NONE, {}) == {10: "other", 11: "other", 12: "trainer"}


def test_forked_workers_bear_the_trainers_command_line() -> None:
    processes = family(python(10, 1), python(11, 10), python(12, 10, name="pt_data_worker"))
    assert roles_of(processes, NONE, {}) == {10: "trainer", 11: "worker", 12: "worker"}


def test_spawned_workers_and_their_tracker() -> None:
    spawned = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)")
    tracker = ("python", "-c", "from multiprocessing.resource_tracker import main;main(4)")
    processes = family(python(10, 1), python(11, 10, *tracker), python(12, 10, *spawned))
    assert roles_of(processes, NONE, {}) == {10: "trainer", 11: "other", 12: "worker"}


def test_forkserver_workers_are_its_children() -> None:
    server = ("python", "-c", "from multiprocessing.forkserver import main; main(5, 6, [])")
    processes = family(python(10, 1), python(11, 10, *server), python(12, 11, *server))
    assert roles_of(processes, NONE, {}) == {10: "trainer", 11: "other", 12: "worker"}


def test_compiler_processes_are_no_workers() -> None:
    pool = ("python", "/x/torch/_inductor/compile_worker/__main__.py", "--workers=2")
    processes = family(python(10, 1), python(11, 10, *pool), python(12, 11, *pool), program(13, 10, "gcc", "-O3"))
    assert roles_of(processes, NONE, {}) == {10: "trainer", 11: "other", 12: "other", 13: "other"}


def test_a_launcher_that_waits_for_a_program_in_python_does_not_train() -> None:
    """``accelerate launch train.py`` on one device, and commands that run it: no rank, a script of its own."""
    tool, launcher = python(10, 1, "python", "/v/bin/trl", "sft"), python(11, 10, "python", "/v/bin/accelerate-launch")
    processes = family(tool, launcher, python(12, 11), python(13, 12), python(14, 12, name="pt_data_worker"))
    roles = roles_of(processes, NONE, {}, {10, 11}.__contains__)
    assert roles == {10: "other", 11: "other", 12: "trainer", 13: "worker", 14: "worker"}
    assert roles_of(processes, NONE, {}, {11}.__contains__)[10] == "trainer"  # it does something itself


def test_what_waits_for_its_own_forks_or_for_helpers_trains() -> None:
    spawned = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)")
    processes = family(python(10, 1), python(11, 10), python(12, 10, *spawned), program(13, 10, "gcc", "-O3"))
    assert roles_of(processes, NONE, {}, {10}.__contains__)[10] == "trainer"


def test_ranks_train_and_their_launcher_does_not() -> None:
    processes = family(
        python(10, 1, "python", "/bin/torchrun", "train.py"),
        python(11, 10, rank=0),
        python(12, 10, rank=1),
        python(13, 11, rank=0),
    )
    assert roles_of(processes, NONE, {}) == {10: "other", 11: "trainer", 12: "trainer", 13: "worker"}


def test_markers_decide() -> None:
    """A spawned process that trains is no worker, a launcher above it no trainer."""
    spawned = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
    processes = family(python(10, 1), python(11, 10, *spawned), python(12, 10, *spawned))
    assert roles_of(processes, frozenset({11, 12}), {}) == {10: "other", 11: "trainer", 12: "trainer"}


def test_marks_of_processes_that_are_gone_do_not_count() -> None:
    assert roles_of(family(python(10, 1)), frozenset({99}), {}) == {10: "trainer"}


def test_a_worker_stays_one_when_its_trainer_is_gone() -> None:
    processes = family(python(11, 1, name="renamed"), python(12, 1, "python", "else.py"))
    assert roles_of(processes, frozenset({12}), {11: "worker"})[11] == "worker"


def test_parents_in_a_circle() -> None:
    assert roles_of(family(python(10, 11), python(11, 10)), NONE, {}) == {10: "other", 11: "other"}


STARTED_BY_US = Variables(has_run_id=True)


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


def test_an_interpreter_that_runs_nothing_at_its_start() -> None:
    for options in (("-S",), ("-uS",), ("-X", "dev", "-S")):
        me = python(1, 0, "python", *options, "train.py")._replace(variables=STARTED_BY_US)
        assert why_no_markers(me, "trainer", True) == "started with -S: it runs nothing at its start"


def test_other_reasons_for_no_markers() -> None:
    me = python(1, 0)._replace(variables=STARTED_BY_US)
    assert why_no_markers(me, "trainer", False) == "attached: not started by tuimon"
    off = me._replace(variables=Variables(has_run_id=True, markers_off=True))
    assert why_no_markers(off, "trainer", True) == "switched off (--no-markers)"
    assert "without tuimon's PYTHONPATH" in (why_no_markers(python(1, 0), "trainer", True) or "")
    assert why_no_markers(me._replace(variables=None), "trainer", True) == "no torch imported yet"
    assert why_no_markers(me, "worker", True) is None
    assert why_no_markers(program(1, 0, "bash"), "other", True) is None


SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)")


def test_a_learner_that_the_program_has_spawned_trains_in_its_place() -> None:
    processes = family(python(10, 1), python(11, 10, *SPAWNED), python(12, 10, *SPAWNED))
    found = roles_of(processes, NONE, {}, seen=frozenset({11}))
    assert found == {10: "other", 11: "trainer", 12: "worker"}  # which may train, too: it is sampled


def test_a_program_that_trains_beside_one_that_it_has_spawned() -> None:
    processes = family(python(10, 1), python(11, 10, *SPAWNED))
    assert roles_of(processes, NONE, {}, seen=frozenset({10, 11})) == {10: "trainer", 11: "trainer"}


def test_ranks_that_were_not_seen_to_train_yet_are_ranks() -> None:
    processes = family(python(9, 1, "torchrun"), python(10, 9, rank=0), python(11, 9, rank=1))
    assert roles_of(processes, NONE, {}, seen=frozenset({10})) == {9: "other", 10: "trainer", 11: "trainer"}


def test_a_worker_that_needs_gradients_for_its_items_loads_data() -> None:
    processes = family(python(10, 1), python(11, 10, name="pt_data_worker"))
    assert roles_of(processes, NONE, {}, seen=frozenset({10, 11})) == {10: "trainer", 11: "worker"}


def test_markers_decide_where_there_are_any() -> None:
    processes = family(python(10, 1), python(11, 10))
    assert roles_of(processes, frozenset({10}), {}, seen=frozenset({11})) == {10: "trainer", 11: "worker"}


def test_a_tracker_that_outlives_its_program_does_not_train() -> None:
    tracker = python(11, 1, "python", "-c", "from multiprocessing.resource_tracker import main;main(4)")
    assert roles_of(family(tracker), NONE, {10: "trainer", 11: "other"}) == {11: "other"}


def test_a_spawned_worker_that_outlives_its_program_does_not_train_in_its_place() -> None:
    processes = family(python(11, 1, *SPAWNED), python(12, 1, *SPAWNED))
    before: dict[int, ProcessRole] = {10: "trainer", 11: "worker", 12: "worker"}
    assert roles_of(processes, NONE, before) == {11: "worker", 12: "worker"}
    assert roles_of(processes, NONE, before, seen=frozenset({12})) == {11: "worker", 12: "trainer"}
