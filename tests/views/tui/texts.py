"""Drawn lines as plain text."""

from tuimon.views.tui.drawing.lines import text_of


def texts(lines):
    """The characters of each line, without blanks at its end."""
    return [text_of(row).rstrip() for row in lines]
