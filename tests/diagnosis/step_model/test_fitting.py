"""A step whose simulation takes as long as was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.step_model.test_simulation import step
from tests.scenarios.streams import STREAMS, judged
from tuimon.diagnosis.finding import Change
from tuimon.diagnosis.step_model.edits import changed
from tuimon.diagnosis.step_model.simulation import step_ms

BY_NAME = {stream.name: stream for stream in STREAMS}


@pytest.mark.parametrize(
    "name", ["checkpoint every step", "long checkpoint every step", "item() before making a batch"]
)
def test_what_a_fix_gains_on_a_gpu_is_what_the_loop_without_it_shows(name: str, tmp_path: Path):
    found = judged(BY_NAME[name], tmp_path, 12.0)
    assert found.right, found.headline
    assert found.predicted == pytest.approx(found.measured, rel=0.05)


def test_side_work_and_waits_are_changed_where_they_are():
    saves = step(workers=0, batch_ms=0.5, own_ms=26.0, side_ms=20.0, gpu_ms=12.0, waits="launched")
    half = changed(saves, Change("side_work", 0.0), 0.5)
    assert (half.own_ms, half.side_ms) == (16.0, 10.0)
    assert step_ms(half) == pytest.approx(22.5)
    assert step_ms(changed(saves, Change("sync", 0.0))) == pytest.approx(26.5)
