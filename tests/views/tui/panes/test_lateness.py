"""Lateness over time: cells from windows of ranks."""

import pytest

from tests.views.tui.texts import texts
from tuimon.session.ranks.row import RankRow
from tuimon.session.ranks.stats import PARTS, RankWindow
from tuimon.views.tui.panes.lateness import overview, own_share, strip_line, strips

MS = 1_000_000


def window(t, own_ms, backward_ms, busy=None, window_s=1.0):
    parts = {"forward": own_ms, "backward": backward_ms}
    return RankWindow(t, window_s, 10, tuple(int(parts.get(name, 0) * 10 * MS) for name in PARTS), 0, busy)


def rank(number, *windows, **more):
    return RankRow(number, 100 + number, "here", "training", 0, 10, 0, history=windows, **more)


def test_a_rank_is_late_by_its_own_share_beyond_the_median():
    even = [rank(n, *(window(t, 20, 80) for t in range(1, 5))) for n in range(3)]
    late = rank(3, window(1, 20, 80), window(2, 20, 80), window(3, 70, 30), window(4, 70, 30))
    found = strips([*even, late], [late, even[0]], 4.5, 4)
    assert found.cell_s == 1
    assert found.late[103] == pytest.approx([0.0, 0.0, 0.5, 0.5])
    assert found.late[100] == pytest.approx([0.0] * 4)
    assert texts([strip_line(found.late[103], 4)]) == ["▁▁▇▇"]
    assert texts([strip_line(found.late[103], 8)]) == ["▁▁▁▁▇▇▇▇"]


def test_lateness_inside_backward_shows_by_how_busy_the_thread_was():
    others = [rank(n, window(1, 10, 90, busy=0.3)) for n in range(2)]
    late = rank(2, window(1, 10, 90, busy=0.9))
    assert strips([*others, late], [late], 1.5, 1).late[102] == pytest.approx([0.6])
    assert own_share(window(1, 10, 90, busy=0.9), 1000 * MS, 0.0, on_gpu=True) == pytest.approx(0.1)


def test_a_longer_run_has_longer_cells_and_long_windows_fill_several():
    rows = [rank(n, *(window(t, 20, 80) for t in range(1, 200))) for n in range(2)]
    found = strips(rows, rows, 200.0, 50)
    assert found.cell_s == 5
    assert found.span_s == 199.0  # not the 250 s of all its cells
    coarse = [rank(n, window(10, 20, 80, window_s=10.0), window(20, 20, 80, window_s=10.0)) for n in range(2)]
    assert None not in strips(coarse, coarse, 20.0, 10).late[100]


def test_all_of_a_thousand_ranks_in_a_few_lines():
    rows = [rank(n, late_ms=50.0 if n == 7 else 0.0, step_ms=100.0) for n in range(1000)]
    rows[3] = rows[3]._replace(state="lost")
    lines = texts(overview(rows, 400))
    assert len(lines) == 3 and lines[0].startswith("▁▁▁!▁▁▁▇▁")
