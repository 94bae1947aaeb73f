"""Hot lines: own and total, recursion, libraries, phases."""

import pytest

from tests.session.stacks import profiles
from tests.session.stacks.profiles import MAIN, PLACES
from tests.session.stacks.test_tree import table
from tuimon.session.stacks.samples import Sample, Samples, line_table


def of_stacks(known, *counted):
    return line_table([Sample(known.node(ids), count, "none") for ids, count in counted])


def of_session(**more):
    session = profiles.session(2)
    return session.over("recent").samples(MAIN).table(**more)


def rows(found):
    return {
        (row.place.file.rpartition("/")[2], row.place.line): (row.own, row.total, row.activity) for row in found.lines
    }


def test_most_own_samples_first_and_own_adds_up():
    found = of_session()
    assert [row.place.line for row in found.lines][:3] == [44, 21, 55]
    assert sum(row.own for row in found.lines) == found.samples == 200
    assert found.activities == (("data", 124), ("torch", 56), ("sync", 16), ("sleep", 4))


def test_every_line_by_itself():
    found = rows(of_session(libraries=True))
    assert found["selectors.py", 415] == (124, 124, "data")
    assert found["train.py", 44] == (0, 124, "data")
    assert found["conv.py", 543] == (28, 28, "torch")
    assert ("module.py", 1773) not in found  # what torch puts between a call and its forward


def test_only_one_phase():
    found = of_session(part="forward")
    assert found.samples == 40
    assert {row.place.line for row in found.lines if row.own} == {21, 24}


def test_recursion_counts_once():
    known = table(("r.py", 1, "main", "", True), ("r.py", 9, "again", "", True))
    found = rows(of_stacks(known, ([0] + [1] * 500, 3)))
    assert found == {("r.py", 9): (3, 3, "python"), ("r.py", 1): (0, 3, "python")}


def test_without_user_code_the_innermost_line_of_a_package():
    known = table(("/x/site-packages/a/b.py", 1, "run"), ("/usr/lib/python3.11/json/decoder.py", 2, "decode"))
    found = of_stacks(known, ([0, 1], 3))
    assert [(row.place.file, row.own, row.total, row.user) for row in found.lines] == [
        ("/x/site-packages/a/b.py", 3, 3, False)
    ]


def test_most_of_what_is_done_at_a_line_names_it():
    known = table(PLACES[1], PLACES[8], ("/e/torch/nn/modules/conv.py", 1, "f"))
    (row,) = of_stacks(known, ([0, 1], 3), ([0, 2], 7)).lines
    assert row.activity == "torch"


def test_bounded():
    known = table(*(("f.py", n, "f", "", True) for n in range(1, 2000)))
    found = of_stacks(known, *(([n], 1) for n in range(1999)))
    assert len(found.lines) == 500
    assert found.samples == 1999


def test_a_line_is_one_row_whatever_has_a_frame_in_it():
    text = "batch = torch.stack([load(n) for n in range(9)])"
    known = table(*(("/p/a.py", 7, name, text, True) for name in ("main", "<listcomp>", "<genexpr>")))
    found = of_stacks(known, ([0], 1), ([0, 1], 3), ([1, 2], 1))
    (row,) = found.lines
    assert (row.place.function, row.own, row.total, row.activity) == ("main", 5, 5, "python")


def test_a_lambda_shares_the_row_of_its_line():
    text = "order = sorted(words, key=by)"
    lines = ((8, "mask"), (7, "<lambda>"), (7, "mask"), (9, "main"))
    known = table(*(("train.py", line, function, text, True) for line, function in lines))
    rows = Samples(tuple(Sample(known.node([n]), count, "none") for n, count in enumerate((2, 1, 3, 1)))).lines()
    found = [(row.place.line, row.place.function, row.samples) for row in rows]
    assert found == [(7, "mask", 4), (8, "mask", 2), (9, "main", 1)]
    assert rows[0].share == pytest.approx(4 / 7)
