"""The compressed day's arithmetic: slopes, counts, and which promise is broken when."""

from collections import Counter
from pathlib import Path

import pytest

from tests.day.__main__ import live
from tests.day.counted import Logged, Rank
from tests.day.readings import RANKS, Reading
from tests.day.table import Day, promises, table

MINUTES = 30.0


def a_day(grows_mb_per_s: float = 0.0, files_per_s: float = 0.0, counted: float = 100) -> Day:
    readings = [
        Reading(float(s), 40 + grows_mb_per_s * s, 300.0, s * 0.1, s / 1000, 30 + int(s * files_per_s), 9, 40)
        for s in range(int(MINUTES * 60))
    ]
    sums = Logged(
        steps=Counter({10: int(counted), 11: 50}),
        last_index={10: int(counted), 11: 50},
        updates=Counter({10: 100, 11: 50}),
        window_bytes=20_000_000,
        exit_code=0,
    )
    ranks = {0: Rank(10, 100), 1: Rank(11, 50)}
    return Day(MINUTES, readings, ranks, Counter(epochs=2), sums, [], 0)


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        ({}, []),
        (
            {"grows_mb_per_s": 2 / 75},
            ["monitor's memory grows, in 3,600 windows", "monitor's memory grows, in an hour of events"],
        ),
        ({"files_per_s": 1 / 75}, ["more monitor files"]),
        ({"counted": 99}, ["number of its last step", "steps of rank 0"]),
    ],
)
def test_growth_a_handle_an_hour_and_a_step_too_few_break_a_promise(fault: dict[str, float], names: list[str]) -> None:
    day = a_day(**fault)
    assert sorted(promise.name for promise in promises(day) if promise.kept is False) == names
    assert ("BROKEN" in table(day)) == bool(names)


@pytest.mark.torch
@pytest.mark.timeout(900)  # ``live`` gives up after 72 s, those left out in which it waits for a core
def test_ten_minutes_are_counted_exactly(tmp_path: Path) -> None:
    day = live(tmp_path, 0.2, full_screen=False)
    assert len(day.made) == RANKS and all(rank.steps for rank in day.made.values())
    broken = [promise.line() for promise in promises(day) if promise.exact and promise.kept is not True]
    assert broken == [], table(day)
    assert day.left_behind == []
