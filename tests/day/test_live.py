"""Ten minutes of the day in twelve seconds: it must end well, and count right. What grows, only the whole day tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.day.__main__ import live
from tests.day.rates import RANKS
from tests.day.table import promises, table


@pytest.mark.torch
def test_ten_minutes_are_counted_exactly(tmp_path: Path) -> None:
    day = live(tmp_path, 0.2, full_screen=False)
    assert len(day.made) == RANKS and all(rank.steps for rank in day.made.values())
    broken = [promise.line() for promise in promises(day) if promise.exact and promise.kept is not True]
    assert broken == [], table(day)
    assert day.left_behind == []
