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
    ],
)
def test_how_long_something_goes_on_is_told_once_it_has(for_s, text):
    assert state_text(RunState("between_steps", 14.0, "in eval", for_s, PLACE)) == text
