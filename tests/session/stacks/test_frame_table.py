"""Lines of code that samples have brought."""

from tuimon.records import Frame
from tuimon.session.stacks.trie import Trie


def test_lines_near_another_are_those_that_frames_brought():
    table = Trie()
    table.add_frames(0, [Frame("a.py", 4, "f", "x = 1"), Frame("a.py", 5, "f", "y = 2"), Frame("a.py", 9, "f", "far")])
    table.add_frames(3, [Frame("b.py", 5, "g", "other"), Frame("a.py", 6, "f", "")])
    assert table.lines_near("a.py", 5, 1) == [(4, "x = 1"), (5, "y = 2")]
    assert table.lines_near("c.py", 5, 1) == []
