"""The experiment itself: a stretch that is cut out is the run that it was, and the table counts right."""

from __future__ import annotations

import pytest

from tests.diagnosis.comparison.series import correlated, run_records
from tests.truth.diff import (
    Diff,
    Group,
    cut,
    cut_pairs,
    deviation,
    drawn_pairs,
    figures,
    floor_line,
    found_at_best,
    ratios,
    recorded_steps,
)
from tests.truth.kind import line
from tuimon.records import Steps

RECORDS = run_records(correlated(200, 0.3, 1))


def test_a_cut_has_the_steps_of_its_stretch() -> None:
    steps = [record for record in cut(RECORDS, 10.0, 30.0) if isinstance(record, Steps)]
    assert (steps[0].t, steps[-1].t, len(steps)) == (12.0, 41.0, 30)
    assert figures(cut(RECORDS, 10.0, 30.0), "").facts.torch == "2.13.0+cpu"


def test_a_slower_cut_has_as_many_steps_in_more_time() -> None:
    plain, slower = (figures(cut(RECORDS, 10.0, 30.0, factor), "").stretches for factor in (1.0, 1.03))
    assert [row.steps for row in plain] == [row.steps for row in slower]
    for name in ("total_ns", "data_ns", "span_s"):
        one, other = (sum(getattr(row, name) for row in rows) for rows in (plain, slower))
        assert other / one == pytest.approx(1.03)


def test_cut_pairs_do_not_overlap_and_are_always_the_same() -> None:
    one, other = (list(cut_pairs([RECORDS], 5, (20, 60))) for _ in range(2))
    assert [each.name for each in one] == [each.name for each in other]
    for each in one:
        length, begins = each.name.split(" s")[0], [float(part.split()[3]) for part in each.name.split("|")]
        assert abs(begins[0] - begins[1]) >= float(length) - 2


def test_the_table_counts_what_was_said() -> None:
    planted = list(cut_pairs([RECORDS], 6, (60, 60), slower=1.5))
    assert [each.outcome for each in planted] == ["slower"] * 6
    rows = [
        Group("planted", list, 1.5, must_find=True, pairs=tuple(planted)),
        Group("runs", list, pairs=tuple(planted[:2])),
    ]
    assert line(Diff.columns, rows[0]).split()[:4] == ["planted", "6", "6", "0"]
    assert Diff().totals(rows)[:2] == ["called different without a difference: 2 of 2", "3 % found: 6 of 6"]
    assert Diff().passed(rows[:1]) and not Diff().passed(rows)


def test_drawn_runs_have_the_steps_of_their_recording() -> None:
    steps_ms = recorded_steps()["dlrm_trace_diff_control"]
    assert 70 < min(steps_ms) < max(steps_ms) < 90 and 0.01 < deviation(steps_ms) < 0.06
    same, slower = (list(drawn_pairs(steps_ms, 8, 60, factor)) for factor in (1.0, 1.03))
    assert sum(each.outcome == "slower" for each in slower) >= 7
    assert sum(each.outcome in ("slower", "faster") for each in same) <= 1
    assert [each.found for each in same] == [each.found for each in drawn_pairs(steps_ms, 8, 60)]


def test_steps_that_vary_too_much_for_a_minute_are_not_told_apart() -> None:
    steps_ms = recorded_steps()["resnet_param"]
    outcomes = {each.outcome for each in drawn_pairs(steps_ms, 4, 60, 1.03)}
    assert deviation(steps_ms) > 0.5 and outcomes == {"unclear"}


def test_what_the_machine_allows_is_what_stretches_of_one_run_differ_by() -> None:
    even = run_records([10.0] * 200)
    assert set(ratios(even, 60)) == {0.0}
    assert floor_line("even", even, 60, 1.03, 0.05).endswith(
        "differ by 0.0 %; a judge who knew that would find 3 % in 100 % of pairs"
    )
    halves = run_records([10.0] * 100 + [11.0] * 100)
    assert found_at_best(ratios(halves, 60), 1.03, 0.05) < 0.5
    assert max(ratios(halves, 60)) == pytest.approx(0.0953, abs=1e-3)
    assert ratios(run_records([10.0] * 50), 60) == []
