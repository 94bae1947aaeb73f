"""Plain text in lines."""

import pytest

from tuimon.views.format import wrap


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("the GPU waits 91 % of it", ["the GPU waits", "  91 % of it"]),
        ("a step takes 12 ms, or 1.5 GiB", ["a step takes", "  12 ms, or", "  1.5 GiB"]),
        ("at /home/somebody/src/train.py:31 main", ["at", "  /home/somebody/src/train.py:31", "  main"]),
        ("3 steps/s", ["3 steps/s"]),
        ("", []),
    ],
)
def test_a_line_is_broken_at_spaces_but_not_before_a_unit(text, lines):
    assert wrap(text, 15, later="  ") == lines
