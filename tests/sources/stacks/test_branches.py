"""The branch of an ``if`` around a line."""

import pytest

from tuimon.sources.stacks.frames.branches import branch_around

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
