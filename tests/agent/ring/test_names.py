"""Names of user ranges: of any kind, and however many."""

import pytest

import tuimon
from tests.state_size import size_of
from tuimon.agent import runtime


def names_in(reader):
    """How many the ring has."""
    return sum(reader.name(number) != "?" for number in range(1, 5000))


def test_counters_in_names_do_not_fill_the_table(monitored):
    sizes = []
    for i in range(6000):
        with tuimon.phase(f"iteration {i}"):
            pass
        if i % 500 == 499:
            sizes.append(size_of(runtime.names))
    assert max(sizes) <= 1.1 * sizes[0]
    assert names_in(monitored.reader) <= 66
    assert monitored()[-2][1][0] == "iteration #"
    with tuimon.phase("evaluate"):
        pass
    assert monitored()[0][1][0] == "evaluate"


def test_made_up_names_of_any_kind_are_bounded(monitored):
    for i in range(5000):
        tuimon.mark("".join(chr(97 + int(digit)) for digit in str(i)))
    assert names_in(monitored.reader) <= 1025
    assert monitored()[-1][1][0] == "(more names)"


class Unprintable:
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("name", "shown"),
    [(None, "None"), (7, "7"), ([1], "[1]"), (Unprintable(), "?"), ("a\x1fb", "a?b"), ("x" * 999, "x" * 200)],
)
def test_strange_names(monitored, name, shown):
    with tuimon.phase(name):
        pass
    assert monitored()[0][1][0] == shown
