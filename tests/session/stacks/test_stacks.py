"""The place of a stack in the user's code."""

from tuimon.records import Frame
from tuimon.session.stacks.trie import user_place


def test_a_comprehension_belongs_to_its_function() -> None:
    function, comprehension = Frame("a.py", 3, "rows", "", True), Frame("a.py", 4, "<listcomp>", "", True)
    place = user_place([function, comprehension])
    assert place is not None
    assert (place.function, place.line) == ("rows", 4)
    alone = user_place([comprehension])
    assert alone is not None
    assert alone.function == "<listcomp>"
