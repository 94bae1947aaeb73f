"""The branch of an ``if`` around a line, and whether it is in a loop."""

import pytest

from tuimon.sources.stacks.frames.frame_ids import branch_around, is_in_loop

SCRIPT = b"""\
if __name__ == "__main__":
    def main():
        while True:
            x = batch()
            if step % 100 == 0:
                # often
                with torch.no_grad():
                    for y in held_out:
                        losses.append(
                            model(y)
                        )
            elif (
                step == 7
            ):
\t\tsave()

            loss = model(x)
    main()
""".splitlines()


@pytest.mark.parametrize(
    ("line", "branch"),
    [
        (4, None),
        (5, None),
        (7, (5, 10)),
        (10, (5, 10)),
        (15, (12, 15)),
        (17, None),
        (18, (1, 18)),
        (0, None),
        (99, None),
    ],
)
def test_the_branch_around_a_line(line, branch):
    assert branch_around(SCRIPT, line) == branch


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
    assert is_in_loop(LOOPS, line) == found
