"""A small version of ``make truth KIND=inject``: two injections into a training of each shape."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.agent.programs import environment, printed_json
from tests.truth.inject import SCRIPT, SHAPES, run_trial
from tests.warm_torch import WarmProgram, warm_python

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb"),
]


def warm(words: list[str], streams: list[int]) -> WarmProgram:
    return WarmProgram(words, environment(None), None, streams)


@pytest.mark.parametrize("shape", SHAPES)
def test_none_is_harmed(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    trial, steps, digest = run_trial(shape, min(SHAPES[shape], 0.5), 2, 1, warm)
    assert trial.faults == []
    assert len(trial.first_marker_s) == 2
    plain = warm_python(str(SCRIPT), "plain", str(steps), env=environment(None))
    assert printed_json(plain)[steps - 1] == digest
