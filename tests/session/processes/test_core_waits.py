"""How long a process waited for a core, in windows that are not those of its threads."""

from __future__ import annotations

import pytest

from tests.session.records import threads
from tuimon.session.processes.core_waits import CoreWaits


def waits(*windows: tuple[float, list[tuple[int, float, float]]]) -> CoreWaits:
    """Of windows of a second: when each ends, and the threads as (id, CPU, wait)."""
    found = CoreWaits()
    for end_s, rows in windows:
        found.add_window(threads(end_s, *((tid, "python", cpu, "running", wait) for tid, cpu, wait in rows)))
    return found


def test_a_window_of_steps_has_its_part_of_each_window_of_threads() -> None:
    found = waits((10.7, [(100, 0.8, 0.2)]), (11.7, [(100, 0.4, 0.6)]), (12.7, [(100, 1.0, 0.0)]))
    assert found.over(10.0, 11.0).waited == pytest.approx(0.7 * 0.2 + 0.3 * 0.6)
    assert found.over(11.0, 12.0).waited == pytest.approx(0.7 * 0.6)


def test_it_is_of_the_main_thread_or_of_one_that_computes() -> None:
    helper, computing = (7, 0.02, 0.2), (8, 0.5, 0.4)
    assert waits((11.0, [(100, 0.1, 0.1), helper])).over(10.0, 11.0).waited == 0.1
    assert waits((11.0, [(100, 0.1, 0.1), helper, computing])).over(10.0, 11.0).waited == 0.4


def test_what_is_used_has_its_part_of_each_window_too() -> None:
    found = waits((10.7, [(100, 0.8, 0.2)]), (11.7, [(100, 0.4, 0.6)]))
    assert found.over(10.0, 11.0).cpu == 1.0  # of the whole process, in these records
    later = CoreWaits()
    for end_s, cores in ((10.7, 1.5), (11.7, None), (12.7, 0.5)):
        later.add_window(threads(end_s, (100, "python", 0.5, "running", 0.2), cpu_ratio=cores))
    assert later.over(10.2, 12.2).cpu == pytest.approx(1.0)
    assert CoreWaits().over(0.0, 1.0).cpu is None


def test_what_is_not_known_is_none_and_what_is_late_the_latest() -> None:
    assert CoreWaits().over(0.0, 1.0).waited is None
    assert waits((11.0, [(100, 0.8, 0.2)])).over(12.0, 13.0).waited == 0.2
