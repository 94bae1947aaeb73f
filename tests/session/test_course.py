"""The course of a run: no sum is lost, however long it lasts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.session import records
from tuimon.session.steps.course import Course


def test_neighbours_are_added_up_when_there_are_too_many() -> None:
    course = Course(1, limit=4)
    for at in range(1, 7):
        course.add_row((at - 1, at, 10 * at, at))
    assert course.rows() == [(0, 2, 10, 3), (2, 4, 30, 7), (4, 6, 50, 11)]
    course.add_row((6, 7, 70, 7))
    assert course.rows()[-1] == (6, 7, 70, 7)


def test_a_day_stays_bounded_and_whole() -> None:
    course = Course(2)
    for at in range(86_400):
        course.add_row((at, at + 1, at, 1, 2))
    rows = course.rows()
    assert len(rows) <= 480
    assert sum(row[3] for row in rows) == 86_400
    assert (rows[0][0], rows[-1][1]) == (0, 86_400)


@pytest.mark.parametrize("windows", (1, 2, 3, 7, 12, 40))
@pytest.mark.parametrize("limits", [(16, 4), (15, 4, 2), (7, 3, 16)])
def test_a_limit_that_changes_loses_nothing(windows: int, limits: tuple[int, ...]) -> None:
    course = Course(1, limit=limits[0])
    for at in range(windows * len(limits)):
        course.limit = limits[at // windows]
        course.add_row((at, at + 1, at, 2.0**at))
    rows = course.rows()
    assert sum(row[3] for row in rows) == 2.0 ** (windows * len(limits)) - 1
    assert all(before[1] == after[0] == after[2] for before, after in pairwise(rows))
    assert len(rows) <= max(limits[-1], windows)


def test_the_session_keeps_the_course_of_a_process() -> None:
    phases = {"data": 30, "forward": 10, "between": 10, "eval": 5}
    windows = [records.steps(float(t), phases, first_index=10 * (t - 1)) for t in range(1, 4)]
    session = records.session_of(
        records.header(),
        records.process(),
        records.threads(0.5, (100, "python", 0.7, "running", 0.2)),
        *windows,
        records.steps(4.0, {"data": 1}, count=0),
    )
    stats = session.step_stats.get(100)
    assert stats is not None
    rows = stats.course.stretches()
    assert [(row.end_s, row.steps, row.first_step) for row in rows] == [(1.0, 10, 0), (2.0, 10, 10), (3.0, 10, 20)]
    assert rows[0].total_ns == 500e6
    assert (rows[0].data_ns, rows[0].between_ns, rows[0].eval_ns) == (300e6, 100e6, 50e6)
    assert rows[0].waited_ns == 100e6
