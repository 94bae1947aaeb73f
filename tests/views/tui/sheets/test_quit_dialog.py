"""The quit dialog."""

from tests.views.tui.texts import texts
from tuimon.views.tui.sheets.quit_dialog import quit_lines


def test_quit_dialog_before_and_while_ending():
    before = "\n".join(texts(quit_lines(4242, None, 56)))
    assert "tuimon attach 4242" in before and "end it" in before
    assert "sent SIGINT" in "\n".join(texts(quit_lines(4242, "sent SIGINT", 56)))


def test_on_a_tiny_terminal_the_way_back_is_whole():
    rows = texts(quit_lines(4194304, None, 34))
    assert all(len(row.rstrip()) <= 34 for row in rows)
    assert "come back with: tuimon attach 4194304" in " ".join(" ".join(rows).split())
