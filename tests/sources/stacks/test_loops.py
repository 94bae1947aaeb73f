"""Whether a line is in a loop."""

import pytest

from tuimon.sources.source_facts import FileFacts

LOOPS = b"""\
for epoch in range(3):
    def forward(x):
        y = x.exp()
        for t in range(9):
            # each
            if t:
                y = y + x[
                    t
                ]
        z = [torch.tanh(row) for row in y]
        while True:
            z = z[1:]
        return y
    forward(x)
""".splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (1, False),
        (3, False),
        (4, False),
        (7, True),
        (8, True),
        (10, True),
        (12, True),
        (13, False),
        (14, True),
        (0, False),
        (99, False),
    ],
)
def test_whether_a_line_is_in_a_loop_of_its_function(line, found):
    assert FileFacts(LOOPS).in_loop(line) == found
