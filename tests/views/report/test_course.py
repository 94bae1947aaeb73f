"""The chart of a whole run: bounded whatever its length, true to its sums, with the verdicts where they changed."""

from __future__ import annotations

import pytest

from tests.session.records import header, process, steps
from tuimon.records import Exit
from tuimon.session.session import Session
from tuimon.views.report.course import MOST, Course
from tuimon.views.report.html.chart import chart_of

PHASES = {"data": 20, "forward": 30, "backward": 40, "optimizer": 8, "other": 2}
SLOW = {**PHASES, "data": 200}
NOTHING = (0.0,) * 5


def course_of(*records):
    course, session = Course(), Session()
    for record in course.over((header(), process(), *records)):
        session.add(record)
    return course, session


def test_a_short_run_has_a_row_for_each_second():
    course, _ = course_of(*(steps(t, PHASES, first_index=10 * t) for t in (1, 2, 4)))
    length_s, rows = course.rows(100, NOTHING)
    assert (length_s, len(rows)) == (1.0, 5)
    assert rows[0] is None and rows[3] is None  # no step ended there
    assert rows[1] == pytest.approx((20, 30, 40, 8, 2))


def test_of_many_ranks_the_first_are_kept_in_whatever_order_they_come():
    records = [steps(t, PHASES, pid=pid, first_index=10 * t) for t in (1, 2) for pid in range(300, 100, -1)]
    course, _ = course_of(*records)
    assert [pid for pid in range(101, 301) if course.rows(pid, NOTHING) is not None] == list(range(101, 165))
    assert len(course.rows(164, NOTHING)[1]) == 3


def test_a_day_has_no_more_rows_and_the_same_steps():
    day = [steps(10.0 * n, SLOW if 3000 <= n < 3600 else PHASES, first_index=n, window_s=10.0) for n in range(1, 8641)]
    course, _ = course_of(*day)
    length_s, rows = course.rows(100, NOTHING)
    assert length_s * len(rows) == pytest.approx(86_400, abs=length_s)
    assert MOST / 2 <= len(rows) <= MOST
    slow = [at * length_s for at, row in enumerate(rows) if row[0] > 150]
    assert slow[0] == pytest.approx(30_000, abs=length_s) and slow[-1] == pytest.approx(36_000, abs=2 * length_s)


def test_what_markers_cannot_split_is_divided_as_samples_say():
    course, _ = course_of(steps(1, {"between": 50, "backward": 40}))
    _, rows = course.rows(100, (0.5, 0.3, 0.0, 0.0, 0.2))
    assert rows[1] == pytest.approx((25, 15, 40, 0, 10))
    assert course.rows(7, NOTHING) is None


def changes(*at_s):
    return [{"at_s": s, "step": int(s), "from": "side_work", "to": "input_bound/slow_item"} for s in at_s]


def test_the_chart_has_the_changes_where_they_were_and_not_too_many():
    course, session = course_of(
        *(steps(t, PHASES, first_index=10 * t) for t in range(1, 100)), Exit(t=100, pid=100, exit_code=0)
    )
    report = {"findings": [{"rule": "input_bound", "severity": "critical"}], "changes": changes(25.0)}
    chart = chart_of(session.over("whole"), 100, course, report)
    (mark,) = chart["marks"]
    assert mark.left == pytest.approx(0.25)
    assert (mark.text, mark.severity, mark.step) == ("INPUT-BOUND (slow item)", "critical", 25)
    assert chart["whole"] and chart["span_s"] == 100
    many = {"findings": [], "changes": changes(*range(0, 40), 60.0)}
    marks = chart_of(session.over("whole"), 100, course, many)["marks"]
    assert [mark.number for mark in marks] == list(range(1, 13))
    assert {39.0, 60.0} <= {mark.at_s for mark in marks}  # after which it stayed


def test_without_a_course_it_is_of_the_windows_that_the_session_keeps():
    _, session = course_of(*(steps(t, PHASES, first_index=10 * t) for t in range(1, 20)))
    chart = chart_of(session.over("whole"), 100, None, {"findings": [], "changes": changes(5.0)})
    assert not chart["whole"] and chart["marks"] == []


def test_a_process_with_the_number_of_one_that_made_steps_has_the_course_of_both():
    course, session = course_of(*(steps(t, PHASES, first_index=10 * t) for t in (1, 2)), process(start_unix_s=9e8))
    chart = chart_of(session.over("whole"), 100, course, {"findings": [], "changes": []})
    assert chart["whole"] and chart["span_s"] == 3


def test_of_many_ranks_the_first_is_kept_whenever_it_comes():
    course = Course()
    many = [steps(t, PHASES, pid=pid) for t in (1, 2) for pid in range(300, 100, -1)]
    assert len(list(course.over([header(), *many]))) == 401
    assert course.rows(101, NOTHING) is not None and course.rows(300, NOTHING) is None
