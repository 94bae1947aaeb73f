"""The picker: choose a training by arrows or by typing."""

import pytest

from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.sheets.picker import Candidate, Picker
from tuimon.views.tui.terminal_app import Capabilities

FOUND = [
    Candidate(4242, ["python", "train.py", "--lr", "0.1"], "me", 0.98, True),
    Candidate(5151, ["python", "-m", "torch.distributed.run", "[bold]fine\x1b[31mtune.py"], "me", 0.98, False),
    Candidate(99, ["python", "漢字.py"], "me", None, True),
    Candidate(7, ["python", "torchrun"], "me", 0.0, True, helps=True),
]


@pytest.mark.parametrize(
    ("keys", "pid"),
    [
        (("enter",), 4242),
        (("end", "up", "up", "up", "enter"), 4242),
        ((*"TRAIN.py", "enter"), 4242),
        ((*"q漢", "backspace", "backspace", "down", "down", "enter"), 99),
        ((*"nothing like it", "enter", "escape"), None),
        (("ctrl+c",), None),
        ((*"torchrun", "enter"), 7),
    ],
)
async def test_pick(keys, pid):
    app = Picker(FOUND, Capabilities())
    async with app.run_test(size=(100, 20)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
    assert app.return_value == pid


async def test_what_the_list_shows():
    app = Picker(FOUND, Capabilities())
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        rows = [text_of(row) for row in app.list.lines]
        assert rows[1].split() == ["4242", "me", "98", "%", "yes", "python", "train.py", "-…"]
        assert "no" in rows[2].split() and "–" in rows[3]
        assert rows[4].strip() == "1 more of these runs without a step: type to find them"
        assert all(row.isprintable() for row in rows)


async def test_no_training_runs():
    app = Picker([], Capabilities())
    async with app.run_test(size=(100, 20)) as pilot:
        await pilot.press("enter", "down")
        assert app.is_running
        assert "No training runs" in text_of(app.list.lines[1])
        await pilot.press("escape")
    assert app.return_value is None
