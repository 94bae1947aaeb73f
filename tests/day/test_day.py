"""The compressed day's arithmetic: slopes, counts, and which promise is broken when."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.day.counted import Follower, Logged, Rank, logged, made
from tests.day.faults import kill_sampler
from tests.day.promises import growth
from tests.day.rates import RANKS
from tests.day.readings import Reading, slope
from tests.day.table import Day, promises, table
from tests.sources.log.literal_log import HEADER
from tuimon.records import Exit, PhaseTime, Steps
from tuimon.sources.log.reader import read_log
from tuimon.sources.log.writer import LogWriter

MINUTES = 30.0


def test_a_slope_is_not_moved_by_a_few_odd_readings() -> None:
    points = [(float(x), 40 + 0.01 * x) for x in range(1000)]
    points[500] = (500.0, 400.0)
    assert slope(points) == pytest.approx(0.01)
    assert slope([(0.0, 1.0), (1.0, 1.0)]) is None


def test_growth_is_judged_by_events_and_over_enough_windows_by_windows() -> None:
    by_event, by_window = growth("memory", 0.01, 900.0)
    assert by_event.measured == pytest.approx(0.75) and by_event.kept
    assert by_window.measured == pytest.approx(3.6) and by_window.kept is False
    assert [promise.kept for promise in growth("memory", 0.01, 160.0)] == [True, None]
    assert [promise.kept for promise in growth("memory", 0.01, 60.0)] == [None, None]
    assert growth("memory", None, 900.0)[0].kept is False  # not measured is not kept


def test_what_processes_noted_is_summed_by_rank(tmp_path: Path) -> None:
    notes = [
        {"rank": 0, "pid": 10, "updates": 100, "epochs": 2},
        {"rank": 1, "pid": 11, "updates": 30, "restarts": 1},
        {"rank": 1, "pid": 11, "updates": 20, "restarts": 0},
    ]
    (tmp_path / "made.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    ranks, events = made(tmp_path / "made.jsonl")
    assert events == {"epochs": 2, "restarts": 1}
    assert (ranks[0].steps, ranks[1].steps) == (100, 50)  # of two lives


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
    return Day(MINUTES, readings, ranks, Counter(epochs=2), sums, sums, [], 0)


def broken(day: Day) -> set[str]:
    return {promise.name for promise in promises(day) if promise.kept is False}


def test_a_good_day_keeps_all() -> None:
    day = a_day()
    assert len(day.made) == RANKS
    assert broken(day) == set()
    assert "BROKEN" not in table(day)


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (
            {"grows_mb_per_s": 2 / 75},
            ["monitor's memory grows, in 3,600 windows", "monitor's memory grows, in an hour of events"],
        ),
        ({"files_per_s": 1 / 75}, ["more monitor files"]),
        ({"counted": 99}, ["  in the log at the end", "number of its last step", "steps of rank 0"]),
    ],
)
def test_growth_a_handle_an_hour_and_a_step_too_few_break_a_promise(fault: dict[str, float], names: list[str]) -> None:
    assert sorted(broken(a_day(**fault))) == names


def test_only_py_spy_is_killed(tmp_path: Path) -> None:
    """Of this process's own children, by the name that the kernel knows."""
    pretender = tmp_path / "py-spy"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", pretender)
    me = os.getpid()
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            assert not kill_sampler(me)
            with subprocess.Popen([pretender, "60"]) as sampler:
                assert kill_sampler(me)
                assert sampler.wait() == -9
            assert other.poll() is None
        finally:
            other.kill()


def test_a_follower_counts_all_steps_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    follower = Follower(path)
    assert follower.step()  # not begun
    writer = LogWriter(str(path))
    writer.add_record(HEADER)
    phases = [PhaseTime("forward" * 100, 10)]
    for number in range(4000):
        steps = Steps(t=number / 10, pid=10, window_s=0.1, count=5, first_index=5 * number, total_ns=9, phases=phases)
        writer.add_record(steps)
        if number % 200 == 0:
            writer.flush(number / 10)
            follower.step()
    writer.add_record(Exit(t=400, pid=10, exit_code=0))
    writer.close()
    follower.finish(time.monotonic() + 30)
    assert follower.sums.steps == {10: 20_000} and follower.sums.exit_code == 0
    assert follower.now_mb == path.stat().st_size / 1e6 and logged(read_log(str(path))).last_index == {10: 20_000}
