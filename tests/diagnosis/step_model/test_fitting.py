"""A step whose simulation takes as long as was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.step_model.test_simulation import step
from tests.scenarios.streams import STREAMS, judged
from tuimon.diagnosis.finding import Change
from tuimon.diagnosis.step_model.edits import changed
from tuimon.diagnosis.step_model.fitting import as_long_as_measured
from tuimon.diagnosis.step_model.model import gain
from tuimon.diagnosis.step_model.simulation import step_ms

#: An epoch's end takes 14 of 40 ms a step, on one core; before it a pool of two and two workers share two cores.
BURSTS = step(
    workers=2, own_ms=37.0, own_threads=1.6, burst_ms=14.0, burst_every=24, hand_over_ms=3.0, batch_ms=48.0, cores=2.0
)
BY_NAME = {stream.name: stream for stream in STREAMS}


def test_waits_for_a_core_that_the_parts_of_a_step_hold_are_not_added_once_more():
    """Of a recorded run, where such work gained 1.5 times; simulated on its two cores it gains 1.3."""
    assert step_ms(BURSTS) > 55.0
    found = as_long_as_measured(BURSTS, 40.0)
    assert step_ms(found) == pytest.approx(40.0, rel=0.02)
    assert gain(found, Change("side_work", 0.0), 14.0 / 37.0) == pytest.approx(40.0 / 26.0, rel=0.05)


def test_a_step_that_is_no_longer_than_measured_stays_as_it_is():
    for same in (step(), step(workers=0, own_ms=30.0), BURSTS):
        assert as_long_as_measured(same, step_ms(same)) == same


@pytest.mark.parametrize(
    "name", ["checkpoint every step", "long checkpoint every step", "item() before making a batch"]
)
def test_what_a_fix_gains_on_a_gpu_is_what_the_loop_without_it_shows(name: str, tmp_path: Path):
    found = judged(BY_NAME[name], tmp_path, 12.0)
    assert found.right, found.headline
    assert found.predicted == pytest.approx(found.measured, rel=0.06)


def test_side_work_is_changed_where_it_is():
    saves = step(workers=0, batch_ms=0.5, own_ms=26.0, side_ms=20.0, gpu_ms=12.0, waits="launched")
    half = changed(saves, Change("side_work", 0.0), 0.5)
    assert (half.own_ms, half.side_ms) == (16.0, 10.0)
    assert step_ms(half) == pytest.approx(22.5)
