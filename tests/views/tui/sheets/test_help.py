"""The help sheet: keys only, and behind it what the numbers mean."""

import pytest

from tests.views import streams
from tests.views.tui.running_app import running
from tests.views.tui.texts import texts
from tuimon.records import PHASES
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.sheets.help import help_lines, terms_lines


@pytest.mark.parametrize("width", [36, 60, 100])
def test_the_terms_fit_and_explain_every_phase(width):
    lines = terms_lines(width)
    assert all(cells(row) <= width for row in lines)
    drawn = "\n".join(texts(lines))
    for word in (*PHASES, "inferred", "delay", "own cost", "~", "–"):
        assert word in drawn


@pytest.mark.parametrize("width", [36, 60, 100])
def test_every_key_of_the_app_is_listed(width):
    lines = help_lines(width)
    assert all(cells(row) <= width for row in lines)
    listed = {word for row in texts(lines) for word in row[:16].split()}
    names = {"question_mark": "", "slash": "/", "escape": "", "enter": "Enter", "f1": "", "k": ""}
    for binding in TuimonApp.BINDINGS:
        for key in binding.key.split(","):
            shown = names.get(key, key)
            assert not shown or shown in listed, key


async def test_enter_leads_on_to_the_terms():
    async with running(streams.input_bound(5), (120, 60)) as (app, pilot):
        await pilot.press("question_mark")
        assert "Did it help" in "\n".join(map(text_of, app.screen.body.lines))
        await pilot.press("enter")
        await pilot.pause()
        assert "What the numbers mean" in str(app.screen.body.border_title)
