"""Blocks of code without gradients, read from the source."""

import pytest

from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.sources.source_facts import FileFacts, SourceFacts

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
def test_the_block_around_a_line(line, block):
    assert FileFacts(SCRIPT.encode().splitlines()).without_gradients(line) == block


def test_what_is_no_python_has_none(tmp_path):
    (tmp_path / "a.py").write_text("with torch.no_grad():\n    print 'of Python 2'\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    for name, line in (("a.py", 2), ("b.py", 1), ("gone.py", 1)):
        assert SourceFacts().of(str(tmp_path / name), FILES).without_gradients(line) is None
