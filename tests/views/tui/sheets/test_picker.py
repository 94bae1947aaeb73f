"""The picker: choose a training by arrows or by typing."""

from typing import NamedTuple

import pytest

from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.sheets.picker import Picker
from tuimon.views.tui.terminal_app import Capabilities


class Process(NamedTuple):
    pid: int
    command: list
    user: str = "me"
    cpu_ratio: float | None = 0.98
    markers: bool = True


FOUND = [
    Process(4242, ["python", "train.py", "--lr", "0.1"]),
    Process(5151, ["python", "-m", "torch.distributed.run", "[bold]fine\x1b[31mtune.py"], markers=False),
    Process(99, ["python", "漢字.py"], cpu_ratio=None),
]


@pytest.mark.parametrize(
    ("keys", "pid"),
    [
        (("enter",), 4242),
        (("down", "enter"), 5151),
        (("end", "up", "up", "up", "enter"), 4242),
        ((*"5151", "enter"), 5151),
        ((*"TRAIN.py", "enter"), 4242),
        ((*"q漢", "backspace", "backspace", "down", "down", "enter"), 99),
        ((*"nothing like it", "enter", "escape"), None),
        (("escape",), None),
        (("ctrl+c",), None),
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
        assert all(row.isprintable() for row in rows)


async def test_no_training_runs():
    app = Picker([], Capabilities())
    async with app.run_test(size=(100, 20)) as pilot:
        await pilot.press("enter", "down")
        assert app.is_running
        assert "No training runs" in text_of(app.list.lines[1])
        await pilot.press("escape")
    assert app.return_value is None
