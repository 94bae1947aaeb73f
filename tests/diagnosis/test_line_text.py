"""How findings write a line of code."""

import pytest

from tuimon.diagnosis.line_text import idle_part, work_at
from tuimon.interval import Interval
from tuimon.records import Place
from tuimon.session.stacks.samples import HotLine

LOOP = {("train.py", "main"), ("train.py", "<module>")}


@pytest.mark.parametrize(
    ("function", "source", "work"),
    [
        ("plot", "figure.savefig(path)", "plot() train.py:31"),
        ("main", "torch.save(state_of(model), path)", "torch.save() train.py:31"),
        ("<module>", "report(sum(losses) / len(losses))", "report() train.py:31"),
        ("main", "total = [2 * x for x in rows]", "train.py:31"),
        ("main", "for x, y in zip(xs, ys):", "train.py:31"),
    ],
)
def test_nobody_can_leave_out_a_function_that_trains_but_what_its_line_calls(function, source, work):
    assert work_at(HotLine(Place("train.py", 31, function, source), 0.5, 50), LOOP) == work


def test_of_a_librarys_loop_it_is_the_librarys_function():
    library = Place("loop.py", 70, "after_batch")
    hot = HotLine(Place("train.py", 31, "main", "trainer.fit(model)"), 0.5, 50, library)
    assert work_at(hot, LOOP) == "after_batch() loop.py:70, called by main() train.py:31"


def test_a_share_above_nothing_is_not_shown_as_none():
    assert idle_part(Interval(0.003, 0.004)) == "<1 %"
