"""Blocks of code without gradients, read from the source."""

import pytest

from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.records import Frame
from tuimon.sources.source_text import SourceText
from tuimon.sources.stacks.frames.frame_ids import FrameIds, RawFrame
from tuimon.sources.stacks.frames.gradient_blocks import GradientBlocks

FILES = TargetFiles(None, ended=OURS)
SCRIPT = """\
import torch
@torch.no_grad()
def estimate_loss():
    for k in range(200):
        losses[k] = model(*get_batch())
class Trainer:
    @property
    @torch.inference_mode
    def score(self):
        return self.model(held_out)
    def step(self, x):
        with autocast(), torch.no_grad():
            target = self.target(x)

            def again():
                return self.model(x)
        loss = self.model(x) - target
        with torch.set_grad_enabled(False): return loss
        with torch.set_grad_enabled(training):
            loss.backward()
        if loss < best:
            with torch.inference_mode(mode=False):
                save()
            with torch.no_grad():
                with lock:
                    test()
"""


@pytest.mark.parametrize(
    ("line", "block"),
    [
        (1, None),
        (4, (2, 5)),
        (10, (7, 10)),
        (12, None),  # entering it
        (13, (12, 16)),
        (16, None),  # a function that is only defined there
        (17, None),
        (18, (18, 18)),
        (20, None),  # nobody knows what it is set to
        (23, None),
        (26, (24, 26)),
    ],
)
def test_the_block_around_a_line(tmp_path, line, block):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    assert GradientBlocks(SourceText()).around(str(file), line, FILES) == block


def test_a_long_chain_of_branches_is_read(tmp_path):
    """Each is nested in the one before: deeper than Python recurses."""
    branches = [f"elif x == {number}:\n    pass\n" for number in range(1500)]
    text = "".join(["if x < 0:\n    pass\n", *branches, "else:\n    with torch.no_grad():\n        test()\n"])
    file = tmp_path / "train.py"
    file.write_text(text)
    assert GradientBlocks(SourceText()).around(str(file), text.count("\n"), FILES) == (3004, 3005)


def test_what_is_no_python_has_none(tmp_path):
    (tmp_path / "a.py").write_text("with torch.no_grad():\n    print 'of Python 2'\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    for name, line in (("a.py", 2), ("b.py", 1), ("gone.py", 1)):
        assert GradientBlocks(SourceText()).around(str(tmp_path / name), line, FILES) is None


def test_a_frame_is_listed_with_its_block(tmp_path):
    file = str(tmp_path / "train.py")
    (tmp_path / "train.py").write_text(SCRIPT)
    ids = FrameIds()
    for frame in (RawFrame(file, 5, "estimate_loss"), RawFrame(file, 17, "step")):
        ids.id_of(frame, FILES)
    _, frames = ids.pop_new_frames()
    assert [frame.no_grad for frame in frames] == [(2, 5), None]
    assert [frame.loop for frame in frames] == [True, False]
    assert isinstance(frames[0], Frame) and frames[0].source == "losses[k] = model(*get_batch())"
