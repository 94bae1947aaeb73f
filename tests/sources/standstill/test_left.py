"""Whether a thread is outside the loops that it trained in."""

from __future__ import annotations

import pytest

from tuimon.sources.source_facts import SourceBlocks
from tuimon.sources.stacks.frames.frame_ids import RawFrame
from tuimon.sources.standstill.source import has_left

SCRIPT = """\
def fit(loader):
    for batch in loader:
        step(batch)
        report(batch)
    save()

def step(batch):
    backward()

def main():
    for epoch in range(3):
        fit([1])
        evaluate()
    serve()

main(); main()
"""


def at(*places):
    return lambda file: [RawFrame(file, line, function) for line, function in places]


TRAINED = at((16, "<module>"), (12, "main"), (3, "fit"), (8, "step"))


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (at((16, "<module>"), (14, "main")), True),
        (at((16, "<module>"), (14, "main"), (99, "serve")), True),
        (at((16, "<module>"), (14, "Program.main"), (99, "serve")), True),
        (at((16, "<module>"), (13, "main"), (99, "evaluate")), False),  # between epochs
        (at((16, "<module>"), (12, "main"), (5, "fit"), (99, "save")), False),
        (at((16, "<module>"), (12, "main"), (3, "fit"), (7, "step")), False),
        (at((16, "<module>"), (12, "main"), (2, "fit")), False),  # its next batch
        (TRAINED, False),
        (at((16, "<module>"), (99, "other")), False),  # one line calls both
        (at((1500, "_shutdown")), True),  # Python's own end
        (at(), False),
    ],
)
def test_it_has_left_them_below_all_of_them(tmp_path, now, left):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    assert has_left(now(str(file)), TRAINED(str(file)), SourceBlocks()) == left
