"""What a training does while it makes no steps, in words."""

import pytest

from tuimon.records import Place
from tuimon.session.state import RunState
from tuimon.views.state_text import state_text

PLACE = Place("/home/me/train.py", 26, "main", "evaluate(model)")


@pytest.mark.parametrize(
    ("for_s", "text"),
    [
        (None, "no step for 14s: in eval at main() train.py:26"),
        (0.04, "no step for 14s: in eval at main() train.py:26"),
        (0.05, "no step for 14s: in eval at main() train.py:26 for 0.1s"),
        (9.0, "no step for 14s: in eval at main() train.py:26 for 9.0s"),
        (13.9, "no step for 14s: in eval at main() train.py:26"),
    ],
)
def test_how_long_something_goes_on_is_told_once_it_has(for_s, text):
    assert state_text(RunState("between_steps", 14.0, "in eval", for_s, PLACE)) == text


def test_what_it_did_last_is_not_told_as_if_it_went_on():
    """The window in which it was mostly importing may hold its whole training."""
    state = RunState("ended", 11.0, "importing torch", 4.5, None)
    assert state_text(state) == "ended after 11s: mostly importing torch in its last 4.5s"
