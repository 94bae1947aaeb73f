"""The loop of the docstring of ``LoopLines``: what each of its lines is."""

import pytest

from tuimon.records import Frame
from tuimon.session.samples.classify import ENOUGH_SAMPLES, Sample, classify_samples
from tuimon.session.samples.frame_table import FrameTable

TORCH = "/v/lib/python3.11/site-packages/torch"
BELOW = {
    "fetch": Frame(f"{TORCH}/utils/data/dataloader.py", 1, "__next__"),
    "module": Frame(f"{TORCH}/nn/modules/module.py", 2, "_call_impl"),
    "backward": Frame(f"{TORCH}/_tensor.py", 3, "backward"),
    "update": Frame(f"{TORCH}/optim/adam.py", 4, "step"),
    "augment": Frame("train.py", 9, "augment", "", True),
}
LOOP = [(44, "fetch"), (46, "module"), (47, "backward"), (49, "update")]


def sample(line: int, below: str | None, loop: list[tuple[int, str]], count: int = 1) -> Sample:
    """A sample at a line of the loop."""
    frames, stacks = FrameTable(), {}
    for at, called in [*loop, (line, below)]:
        stack = [Frame("train.py", at, "main", "", True), *([BELOW[called]] if called else [])]
        first = 2 * len(stacks)
        frames.add_frames(first, stack)
        stacks[tuple(range(first, first + len(stack)))] = count
    return classify_samples(stacks, frames)[-1]


@pytest.mark.parametrize(
    ("line", "below", "found"),
    [
        (44, "fetch", ("data", False)),
        (44, None, ("forward", True)),
        (45, "augment", ("data", False)),
        (45, None, ("data", False)),
        (46, "module", ("forward", False)),
        (46, None, ("forward", False)),
        (47, "backward", ("backward", False)),
        (48, None, ("other", True)),
        (49, "update", ("optimizer", False)),
        (50, None, ("other", False)),
        (50, "module", ("other", False)),
    ],
)
def test_each_line_of_the_loop(line: int, below: str | None, found: tuple[str, bool]) -> None:
    last = sample(line, below, LOOP)
    assert (last.phase, last.excluded) == found
    assert not last.unsure


def test_without_modules_lines_before_backward_are_surely_forward_once_there_are_enough_samples() -> None:
    loop = [(44, "fetch"), (47, "backward"), (49, "update")]
    few, many = sample(46, None, loop), sample(46, None, loop, count=ENOUGH_SAMPLES)
    assert (few.phase, few.unsure) == ("forward", True)
    assert (many.phase, many.unsure) == ("forward", False)
