"""The trie: its worked example, which nodes stay, the place of a stack in the user's code."""

import doctest
import gc
import weakref

from tests.session.stacks.test_tree import table
from tuimon.records import Frame
from tuimon.session.stacks import trie
from tuimon.session.stacks.trie import Trie, user_place


def test_the_worked_example_runs() -> None:
    assert doctest.testmod(trie) == (0, 11)


def test_nodes_are_shared_and_go_with_what_counts_them() -> None:
    known = table(("a.py", 1, "main"), ("a.py", 2, "load"), ("a.py", 3, "fit"))
    load, fit = known.node([0, 1]), known.node([0, 2])
    assert load.parent is fit.parent is known.node([0])
    gone = weakref.ref(load)
    del load
    gc.collect()
    assert gone() is None
    assert known.node([0, 2]) is fit
    assert known.node([0, 1]).frame.function == "load"


def test_a_comprehension_belongs_to_its_function() -> None:
    function, comprehension = Frame("a.py", 3, "rows", "", True), Frame("a.py", 4, "<listcomp>", "", True)
    place = user_place([function, comprehension])
    assert place is not None
    assert (place.function, place.line) == ("rows", 4)
    alone = user_place([comprehension])
    assert alone is not None
    assert alone.function == "<listcomp>"


def test_lines_near_another_are_those_that_frames_brought():
    table = Trie()
    table.add_frames(0, [Frame("a.py", 4, "f", "x = 1"), Frame("a.py", 5, "f", "y = 2"), Frame("a.py", 9, "f", "far")])
    table.add_frames(3, [Frame("b.py", 5, "g", "other"), Frame("a.py", 6, "f", "")])
    assert table.lines_near("a.py", 5, 1) == [(4, "x = 1"), (5, "y = 2")]
    assert table.lines_near("c.py", 5, 1) == []


def test_a_stack_of_any_depth_is_a_node() -> None:
    known = table(("r.py", 1, "main", "", True), ("r.py", 9, "again", "", True))
    deep = known.node([0] + [1] * 20_000)
    assert len(deep.frames) == len(deep.ids) == 20_001
    gone = weakref.ref(deep)
    del deep
    gc.collect()
    assert gone() is None
