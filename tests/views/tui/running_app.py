"""The app under Pilot, and what its panes show."""

from contextlib import asynccontextmanager

from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.terminal_app import Capabilities


@asynccontextmanager
async def running(monitor, size=(120, 40), capabilities=Capabilities(), signals=None):  # noqa: B008  (immutable)
    app = TuimonApp(monitor, refresh_s=3600, capabilities=capabilities, signals=signals)
    async with app.run_test(size=size) as pilot:
        app.tick()
        await pilot.pause()
        yield app, pilot


def text(app, name):
    """What a pane shows."""
    return "\n".join(text_of(row).rstrip() for row in app.board.query_one(f"#{name}").lines)


def screen_lines(app):
    """The characters of the whole screen, a line each."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def notices(app):
    """What the app has said beside its panes, the oldest first."""
    return list(app._notifications)


def visible(app):
    """The panes on the screen."""
    return {pane.id for pane in app.board.panes if pane.display} - {"title"}


ALL = frozenset({"verdict", "step", "gpu", "output", "threads"})


def texts(lines):
    """The characters of each line, without blanks at its end."""
    return [text_of(row).rstrip() for row in lines]
