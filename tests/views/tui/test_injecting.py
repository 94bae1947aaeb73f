"""Key I: hooks for a training that was attached to."""

import threading

from tests.views import streams
from tests.views.tui.running_app import running
from tuimon.errors import CannotInject
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.sheets.inject_dialog import InjectDialog


class Hooks:
    """Hooks that come in, or do not."""

    def __init__(self, error=None):
        self.missing, self.error, self.asked = True, error, threading.Event()

    def are_missing(self):
        return self.missing

    def bring_in(self):
        self.asked.set()
        if self.error is not None:
            raise self.error
        self.missing = False
        return "hooks brought into process 4242"


def attached(hooks):
    monitor = streams.inferred()
    monitor.hooks = hooks
    return monitor


def notices(app):
    return [notice.message for notice in app._notifications]


async def test_the_key_is_offered_says_what_it_does_and_does_it():
    hooks = Hooks()
    async with running(attached(hooks)) as (app, pilot):
        assert any("I: measure them" in notice for notice in notices(app))
        await pilot.press("I")
        shown = " ".join(text_of(row).strip() for row in app.screen.body.lines)
        assert isinstance(app.screen, InjectDialog) and "stops the training for about 0.1 s" in shown
        assert not hooks.asked.is_set()
        await pilot.press("I")
        await app.workers.wait_for_complete()
        assert "hooks brought into process 4242" in notices(app)
        await pilot.press("I")
        assert not isinstance(app.screen, InjectDialog)
        assert "the training has its hooks already" in notices(app)


async def test_it_can_be_left():
    hooks = Hooks()
    async with running(attached(hooks)) as (app, pilot):
        await pilot.press("I", "escape")
        assert not isinstance(app.screen, InjectDialog) and not hooks.asked.is_set()


async def test_a_refusal_is_shown_with_its_next_step():
    async with running(attached(Hooks(CannotInject("gdb is not installed", "apt install gdb")))) as (app, pilot):
        await pilot.press("I", "enter")
        await app.workers.wait_for_complete()
        assert "gdb is not installed. apt install gdb" in notices(app)


async def test_not_for_a_run_of_our_own():
    async with running(attached(None)) as (app, pilot):
        await pilot.press("I")
        assert not isinstance(app.screen, InjectDialog)
