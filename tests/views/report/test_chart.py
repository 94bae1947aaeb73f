"""The chart of a whole run: bounded whatever its length, and true to its sums."""

from __future__ import annotations

import pytest

from tests.session.records import header, process, session_of, steps
from tuimon.views.report.chart import MOST, chart_of, rows_of

PHASES = {"data": 20, "forward": 30, "backward": 40, "optimizer": 8, "other": 2}
SLOW = {**PHASES, "data": 200}
NOTHING = (0.0,) * 5


def chart(*records, pid=100):
    return chart_of(session_of(header(), process(), *records).over("whole"), pid)


def rows(*records, between=NOTHING):
    session = session_of(header(), process(), *records)
    return rows_of(session.step_stats[100].stretches(), 0.0, between)


def test_a_day_has_no_more_rows_and_the_same_steps():
    day = [steps(10.0 * n, SLOW if 3000 <= n < 3600 else PHASES, first_index=n, window_s=10.0) for n in range(1, 8641)]
    found = rows(*day)
    assert MOST / 2 <= len(found) <= MOST
    length_s = 86_400 / len(found)
    slow = [at * length_s for at, row in enumerate(found) if row[0] > 150]
    assert slow[0] == pytest.approx(30_000, abs=length_s) and slow[-1] == pytest.approx(36_000, abs=2 * length_s)


def test_what_markers_cannot_split_is_divided_as_samples_say():
    (row,) = rows(steps(1, {"between": 50, "backward": 40}), between=(0.5, 0.3, 0.0, 0.0, 0.2))
    assert row == pytest.approx((25, 15, 40, 0, 10))


def test_without_a_step_there_is_no_chart():
    assert chart(steps(1, {}, count=0)) is None and chart(steps(1, PHASES), pid=7) is None
