"""How long the GPU was idle in traces of recorded trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trace.kineto_file import of_recording, write
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import summarize

#: Idle shares of the GPU's time in %, as recorded with each training.
_IDLE = {"resnet50_nw0_a": 42, "resnet18_mallocs": 93, "ddp_resnet_checkpoint": 0.5}


@pytest.mark.parametrize("name", _IDLE)
def test_the_idle_share_is_that_of_the_recording(tmp_path: Path, name: str) -> None:
    (gpu, *_) = summarize(read_trace(write(tmp_path / "trace.json.gz", of_recording(name)))).gpus
    assert 100 - 100 * gpu.busy_ns / gpu.span_ns == pytest.approx(_IDLE[name], abs=3)
