"""A run in bounded memory: no sum is lost, however long it lasts."""

from __future__ import annotations

import doctest
from itertools import pairwise
from typing import NamedTuple

import pytest

from tests.session import records
from tests.state_size import size_of
from tuimon.session import series
from tuimon.session.series import Series, Span
from tuimon.session.step_sums import step_series, stretch_of


class Count(NamedTuple):
    begin_s: float
    end_s: float
    number: float


def counted(windows: int, limit: int) -> Series[Count]:
    found = Series(Count, limit)
    for at in range(windows):
        found.append(Count(at, at + 1, 1), {at % 3: 1, -7: 2})
    return found


def test_its_example_holds() -> None:
    assert doctest.testmod(series) == (0, 10)


@pytest.mark.parametrize("windows", (1, 2, 3, 7, 12, 40, 1000))
@pytest.mark.parametrize("limit", (2, 3, 8))
def test_nothing_is_lost_between_rows_and_the_latest_are_as_recorded(windows: int, limit: int) -> None:
    found = counted(windows, limit)
    rows = found.rows()
    assert (rows[0].begin_s, rows[-1].end_s) == (0, windows)
    assert all(before.end_s == after.begin_s for before, after in pairwise(rows))
    assert all(row.number == row.end_s - row.begin_s for row in rows)
    assert all(row.number == 1 for row in rows[-min(limit - 1, windows) :])
    assert found.over() == Count(0, windows, windows)
    assert sum(found.counts().values()) == 3 * windows
    lengths = {row.number for row in found.even_rows()[:-1]}
    assert all(length >= rows[0].number for length in lengths)


@pytest.mark.parametrize("apart_s", (1.0, 5.0, 30.0))
def test_rows_that_are_kept_apart_are_never_joined(apart_s: float) -> None:
    found = Series(Count, 2)
    found.keep_apart(apart_s)
    for at in range(100):
        found.append(Count(at, at + 1, 1))
    before, after = found.over(Span(end_s=apart_s)), found.over(Span(apart_s))
    assert before is not None and after is not None
    assert (before.number, after.number) == (apart_s, 100 - apart_s)


def test_sums_that_go_on_are_those_from_the_beginning() -> None:
    asked, never = Series(Count, 4), Series(Count, 4)
    for at in range(200):
        for each in (asked, never):
            each.append(Count(at, at + 1, at), {at % 5: at})
        for since in (0.0, 40.0, at - 3.0):
            assert (asked.over(Span(since)) is None) == (at < since)
            asked.counts(Span(since))
    for since in (0.0, 40.0, 197.0):
        assert asked.over(Span(since)) == never.over(Span(since))
        assert asked.counts(Span(since)) == never.counts(Span(since))


def test_a_window_that_is_known_late_comes_where_it_belongs() -> None:
    found = counted(4, 8)
    assert found.over(Span(1.0, 2.0)) == Count(1, 2, 1)
    found.append(Count(1.5, 1.5, 10))
    assert [row.begin_s for row in found.rows()] == [0, 1, 1.5, 2, 3]
    assert found.over(Span(1.0, 2.0)) == Count(1, 2, 11)


def test_a_day_of_a_rank_takes_a_few_megabytes() -> None:
    phases = {"data": 30, "forward": 10, "between": 10, "eval": 5}
    window, day = records.steps(1.0, phases), step_series()
    row, counts = stretch_of(window), dict.fromkeys(range(100, 116), 10)
    for at in range(86_400):
        day.append(row._replace(begin_s=at, end_s=at + 1.0), counts)
    whole = day.over()
    assert whole is not None and (whole.steps, whole.total_ns) == (864_000, 86_400 * row.total_ns)
    assert size_of(day) < 6e6
    assert len(day.even_rows()) >= 8 * 24


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
    rows = session.step_stats[100].stretches()
    assert [(row.end_s, row.steps, row.first_step) for row in rows] == [(1.0, 10, 0), (2.0, 10, 10), (3.0, 10, 20)]
    assert rows[0].total_ns == 500e6
    assert (rows[0].data_ns, rows[0].between_ns, rows[0].eval_ns) == (300e6, 100e6, 50e6)
    assert rows[0].waited_ns == 100e6


def test_windows_of_more_than_30_s_ago_go_but_for_three_with_a_step() -> None:
    session = records.session_of(records.header(), records.process())
    for at in range(6):
        session.add(records.steps(20.0 * (at + 1), {"data": 1.0}, count=int(at != 3), first_index=at))
    assert session.over("recent").step_totals(100).steps == 3
    for at in range(6, 40):
        session.add(records.steps(114.0 + at, {"data": 1.0}, count=1, first_index=at))
    assert session.over("recent").step_totals(100).steps == 30
