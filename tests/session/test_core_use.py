"""Who has the cores besides the run: windows of the machine against those of its processes."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.session.records import threads
from tuimon.records import MachineMemory
from tuimon.session.machines import CoreUse
from tuimon.session.series import LATEST, Span


def machine(t: float, busy_cores: float | None, **more: float) -> MachineMemory:
    return MachineMemory(t=t, pid=0, window_s=5.0, busy_cores=busy_cores, **more)


def used(begin: int, end: int, cores: float | None, use: CoreUse, offset: float = 0.0) -> None:
    """A process of the run in windows of a second."""
    for t in range(begin + 1, end + 1):
        use.add_threads(threads(t + offset, (100, "python", cores, "running"), cpu_ratio=cores))


def test_the_run_is_taken_off_over_the_same_time() -> None:
    """It works for two of five seconds, and the machine's window ends between two of its own."""
    use = CoreUse()
    used(0, 3, 0.0, use, 0.5)
    used(3, 6, 1.5, use, 0.5)
    use.add_machine(machine(5.5, 1.6))
    found = use.over(LATEST, 2, monitor=0.1)
    assert found is not None
    assert found.others == pytest.approx(1.6 - 1.5 * 2 / 5 - 0.1)
    assert found.idle == pytest.approx(0.4)


def test_what_ended_children_used_outside_their_windows_is_the_runs_own() -> None:
    use = CoreUse()
    used(0, 5, 1.0, use)
    use.add_threads(structs.replace(threads(6.0, (100, "python", 1.0, "running")), ended_cpu_s=2.5))
    used(6, 10, 1.0, use)
    use.add_machine(machine(5.0, 1.5))
    use.add_machine(machine(10.0, 1.5))
    found = use.over(LATEST, 2, monitor=0.0)
    assert found is not None
    assert found.others == pytest.approx(0.0)


def test_nothing_is_known_before_both_are_measured() -> None:
    use = CoreUse()
    assert use.over(LATEST, 2, 0.0) is use.over(Span(), 2, 0.0) is None
    use.add_machine(machine(5.0, 1.0))
    assert use.over(LATEST, 2, 0.0) is None
    used(0, 5, 1.0, use)
    use.add_machine(machine(10.0, None))
    assert use.over(LATEST, 2, 0.0) is not None
    assert use.over(Span(5.5), 2, 0.0) is None  # no step yet


def test_a_process_that_has_just_begun_may_have_used_a_core() -> None:
    use = CoreUse()
    used(0, 1, None, use)
    used(1, 5, 0.5, use)
    use.add_machine(machine(5.0, 0.6))
    found = use.over(LATEST, 2, 0.0)
    assert found is not None and found.others == 0.0


def test_the_mean_is_of_the_time_since_the_first_step() -> None:
    """Others used a core until it, and half of one since; a process that has ended since is not forgotten."""
    use = CoreUse()
    use.begin_steps(8.0)
    for end, own, busy in ((5, 1.0, 2.0), (10, 1.0, 2.0), (15, 1.0, 1.5), (20, 0.2, 0.7)):
        used(end - 5, end, own, use)
        use.add_machine(machine(float(end), busy, stolen_cores=0.2, held_cores=0.1, cpu_limit_cores=3.0))
    found = use.over(Span(8.0), 2, 0.0)
    assert found is not None
    assert found.others == pytest.approx(0.5)
    assert (found.stolen, found.held, found.limit) == (pytest.approx(0.2), pytest.approx(0.1), 3.0)


def test_windows_of_a_merged_log_are_as_good() -> None:
    use = CoreUse()
    for t in (60.0, 120.0):
        of_run = threads(t, (100, "python", 0.5, "running"), cpu_ratio=0.5)
        use.add_threads(structs.replace(of_run, window_s=60.0))
        use.add_machine(MachineMemory(t=t, pid=0, window_s=60.0, busy_cores=0.9))
    found = use.over(Span(), None, 0.0)
    assert found is not None
    assert (found.others, found.idle) == (pytest.approx(0.4), None)
