"""Samples of the training thread become the lines beside operators and gaps."""

from __future__ import annotations

import json
from _thread import get_ident
from pathlib import Path

import pytest

from tests.waiting import until
from tuimon.agent.control.stack_windows import FrameWindow
from tuimon.agent.control.trace_lines import LineSampler
from tuimon.agent.ring.side_files import LINES, side_file
from tuimon.sources.tracing import user_lines
from tuimon.sources.tracing.user_lines import read_lines, stretches_of
from tuimon.trace.events import Stretch

MS = 1_000_000
FILE = {
    "order": 7,
    "frames": [
        {"name": "main", "file": "/home/me/train.py", "line": 44},
        {"name": "forward", "file": "/home/me/model.py", "line": 9},
        {"name": "linear", "file": "/usr/lib/python3/site-packages/torch/nn/functional.py", "line": 5},
        {"name": "_run", "file": "/usr/lib/python3.11/threading.py", "line": 1},
    ],
    "stacks": [[0, 1, 2], [0], [3], [9]],
    "samples": [[10 * MS, 0], [11 * MS, 0], [12 * MS, 1], [13 * MS, 2], [14 * MS, 3], [25 * MS, 1]],
}


def test_the_innermost_line_of_the_user_stands_for_the_time_around_its_samples(tmp_path: Path) -> None:
    ring = str(tmp_path / "1-1.ring")
    Path(side_file(ring, LINES)).write_text(json.dumps(FILE))
    assert read_lines(ring, 7) == [
        Stretch("forward() model.py:9", round(8.5 * MS), round(11.5 * MS)),
        Stretch("main() train.py:44", round(11.5 * MS), round(12.5 * MS)),
        Stretch("main() train.py:44", round(23.5 * MS), round(26.5 * MS)),
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "[]", json.dumps({**FILE, "order": 6}), json.dumps({**FILE, "samples": 5})])
def test_what_is_damaged_or_of_another_trace_has_no_lines(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_lines, "TIMEOUT_S", 0.0)
    ring = str(tmp_path / "1-1.ring")
    Path(side_file(ring, LINES)).write_text(content)
    assert read_lines(ring, 7) == []


def test_one_sample_says_nothing_of_how_long() -> None:
    assert stretches_of([(5, 0)], ["a"]) == stretches_of([(5, 0), (5, 0), (4, 0)], ["a"]) == []


def test_a_trace_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    sampler = LineSampler(str(tmp_path / "1-1.ring"), get_ident(), 3, FrameWindow)
    sampler.start(1)
    sampler.stop(keep=False)
    until(lambda: not list(tmp_path.iterdir()))
