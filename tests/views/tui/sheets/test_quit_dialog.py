"""The quit dialog."""

from tests.views.tui.texts import texts
from tuimon.views.tui.sheets.quit_dialog import quit_lines


def test_quit_dialog_before_and_while_ending():
    before = "\n".join(texts(quit_lines(4242, None, 56)))
    assert "tuimon attach 4242" in before and "end it" in before
    assert "sent SIGINT" in "\n".join(texts(quit_lines(4242, "sent SIGINT", 56)))
