"""How often the training visits a block of code, by the order of its samples."""

import json

import pytest

from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.sources.stacks.frames.frame_ids import FrameIds
from tuimon.sources.stacks.pyspy.output import parse_speedscope
from tuimon.sources.stacks.window_records import block_visits

FILES = TargetFiles(None, ended=OURS)
TORCH = "/v/lib/python3.11/site-packages/torch"
SCRIPT = """\
def train():
    loss = model(x)
    loss.backward()
    with torch.no_grad():
        y = batch()
        model(y)
"""


def visits(tmp_path, pattern):
    """Samples and visits of the blocks: ``B`` in backward, ``m`` and ``y`` in the block, ``.`` on another line."""
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    names = [("train", str(file), line) for line in (2, 3, 5, 6)] + [
        ("backward", f"{TORCH}/autograd/__init__.py", 9),
        ("_call_impl", f"{TORCH}/nn/modules/module.py", 8),
    ]
    stacks = {".": [0, 5], "B": [1, 4], "y": [2], "m": [3, 5]}
    raw = {
        "profiles": [{"name": 'Thread 42 "MainThread"', "samples": [stacks[mark] for mark in pattern]}],
        "shared": {"frames": [{"name": name, "file": file, "line": line} for name, file, line in names]},
    }
    (thread,) = parse_speedscope(json.dumps(raw).encode(), 42).threads
    return [(block.samples, block.visits) for block in block_visits(thread, FrameIds(), FILES)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("..B..B", []),
        ("B.mB.mB.m", [(3, 3)]),  # in every step
        ("B.B.B..ymym.y.mBB.B", [(6, 1)]),  # one evaluation: what is on other lines meanwhile trains nothing
        ("mmmBBBmBB", [(4, 2)]),
        ("mmm", [(3, 1)]),
    ],
)
def test_visits(tmp_path, pattern, expected):
    assert visits(tmp_path, pattern) == expected
