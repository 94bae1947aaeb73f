"""Where steps begin, as boundaries pass."""

import pytest

from tuimon.agent.ring import layout
from tuimon.agent.steps import StepCounter

KINDS = {
    "f": (layout.FETCH_BEGIN, layout.FETCH_END),
    "b": (layout.BACKWARD_BEGIN, layout.BACKWARD_END),
    "o": (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END),
    "s": (layout.STEP,),
}


def begins(loop: str) -> str:
    """The loop with a bar before (fetches, backwards) or after (others) each event that begins a step."""
    counter, out = StepCounter(), ""
    for letter in loop:
        found = [counter.begins_step(kind) for kind in KINDS[letter]]
        out += "|" + letter if found[0] and letter in "fb" else letter + "|" if any(found) else letter
    return out


@pytest.mark.parametrize(
    "loop",
    [
        "bo|fbo|fbo|fbo",  # taken up at the end of a backward
        "bo|fbfbo|fbfbo|fb",  # gradient accumulation
        "bo|fbobo|fbobo|fbobo",  # two updates on one batch
        "bo|fbo|ffffffbo|fbo",  # evaluation goes with the step after it
    ],
)
def test_steps_with_a_data_loader(loop):
    assert begins(loop.replace("|", "")).split("|")[-2:] == loop.split("|")[-2:]


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("bobobobo", "bo|bo|bo|bo|"),  # from the second update on it is known how many optimizer steps there are
        ("bbobbobbo", "bbo|bbo|bbo|"),
        ("boobooboo", "boo|boo|boo|"),
        ("sbosbosbo", "s|bos|bos|bo"),
    ],
)
def test_steps_without_a_data_loader(loop, expected):
    found = begins(loop)
    assert found.split("|")[-2:] == expected.split("|")[-2:], found


def test_without_an_optimizer_each_backward_ends_a_step():
    assert begins("b" * 20).endswith("b|b|b|b|")
