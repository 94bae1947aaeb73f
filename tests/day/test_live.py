"""A few minutes of the day, for real: it must end well, and count right. What grows, only the whole day tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.day.__main__ import live
from tests.day.rates import RANKS
from tests.day.table import promises, table


@pytest.mark.torch
def test_a_quarter_of_an_hour_is_counted_exactly(tmp_path: Path) -> None:
    day = live(tmp_path, 0.3, full_screen=False)
    assert len(day.made) == RANKS and all(rank.updates for rank in day.made.values())
    broken = [promise.line() for promise in promises(day) if promise.exact and promise.kept is not True]
    assert broken == [], table(day)
    assert day.left_behind == []
