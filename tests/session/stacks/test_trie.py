"""The trie's worked example runs; nodes go with what counts them."""

import doctest
import gc
import weakref

from tests.session.stacks.test_tree import table
from tuimon.session.stacks import trie


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
