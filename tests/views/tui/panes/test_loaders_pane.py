"""The Loaders pane: its lines at every width, its place on the board, its key."""

import pytest
from rich.cells import cell_len

from tests.session.records import MS
from tests.views import streams
from tests.views.playback import MAIN
from tuimon.records import Loader, LoaderFacts, LoaderWorker
from tuimon.session.session import Session
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.panes.loaders_pane import loaders_lines
from tuimon.views.tui.terminal_app import Capabilities
from tuimon.views.worker_cpu import with_work

TRAIN = LoaderFacts(
    dataset="ImageSet", kind="map", workers=2, prefetch=2, batch_size=32, pin_memory=True, context="fork"
)
EVAL = LoaderFacts(dataset="[bold]Stream\x1b[31m", kind="iterable", workers=0)


def training(seconds=40, workers=2):
    facts = LoaderFacts(dataset="ImageSet", kind="map", workers=workers, prefetch=2, batch_size=32, context="fork",
                        pin_memory=True)  # fmt: skip
    for t in range(1, seconds + 1):
        turns = [LoaderWorker(4300 + i, i, 7, 820.0, 110.0, 63.0, 7.0) for i in range(workers)]
        yield Loader(
            t=float(t), pid=MAIN, number=0, window_s=1.0, role="train", fetches=15, wait_ns=615 * MS, p95_ns=60 * MS,
            ready_fetches=15, ready_total=6 + t % 20, ready_none=9, ready_last=1, facts=facts if t == 1 else None,
            workers=turns,
        )  # fmt: skip


def evaluating(t):
    return Loader(t=t, pid=MAIN, number=1, window_s=1.0, role="eval", fetches=8, wait_ns=8 * 17 * MS, p95_ns=19 * MS,
                  facts=EVAL, workers=[LoaderWorker(MAIN, 0, 8, 100.0, 30.0, 800.0)])  # fmt: skip


def monitor(*records):
    playback = streams.input_bound(40)
    for record in records:
        playback.session.add(record)
    return playback


def rows(*records):
    now = monitor(*records).session.over("recent")
    return with_work(now, MAIN, now.loaders(MAIN))


def texts(loaders, width, height):
    return [text_of(row).rstrip() for row in loaders_lines(loaders, width, height)]


def test_a_loader_with_two_workers():
    head, flow, names, *workers = texts(rows(*training()), 126, 10)
    assert head == "train loader · ImageSet · 2 workers · prefetch 2 · batch 32 · fork · pinned"
    assert flow.startswith("ready ") and " 1 of 4 " in flow
    assert flow.endswith("wait 41.0 ms  p95 60.0 ms   15.0 batches/s   none ready 60 %")
    assert names.split() == ["making", "CPU", "items", "collate", "waiting", "hand", "over", "hottest", "line"]
    assert len(workers) == 2
    assert (
        workers[0].startswith("worker 0    93 % 100 %  ━━━━━━━━━━━━━━━━━")
        and "117 ms   15.7 ms    9.0 ms    1.0 ms" in workers[0]
    )
    assert workers[0].endswith("transforms.py:31  out = cv(img, kernel)")


def test_where_rows_are_short_the_rest_is_one_mean():
    many = rows(*training(workers=64))
    lines = texts(many, 116, 6)
    assert len(lines) == 6
    assert lines[-2].startswith("worker 1 ") and lines[-1].startswith("62 more     93 %")
    assert texts(many, 116, 3)[-1].startswith("64 workers  93 %")


@pytest.mark.parametrize("width", [36, 50, 60, 76, 96, 116, 196])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 6, 12, 30])
def test_lines_fit(width, height):
    for loaders in (rows(*training()), rows(*training(workers=64), evaluating(40.0)), rows(evaluating(1.0))):
        lines = loaders_lines(loaders, width, height)
        assert len(lines) <= height
        assert all(cell_len(text_of(row)) <= width for row in lines)


def test_what_was_not_measured_is_absent():
    session = Session()
    session.add(Loader(t=1.0, pid=MAIN, number=0, window_s=1.0, fetches=0, facts=TRAIN, workers=[LoaderWorker(7, 0)]))
    (row,) = session.over("recent").loaders(MAIN)
    assert (row.wait_ms, row.wait_p95_ms, row.ready_mean, row.ready_none_ratio, row.latest.role) == (None,) * 5
    assert row.worker_rows[0].busy_ratio is None and row.worker_rows[0].items_ms is None
    lines = texts((row,), 116, 10)
    assert lines[1].endswith("wait –  p95 –   0 batches/s   none ready –")
    assert lines[3].split() == ["worker", "0", "–", "─" * 20, "–", "–", "–", "–", "–"]


def idle(items_ms, wait_ms, hand_over_ms):
    turn = LoaderWorker(7, 0, 10, items_ms, 1.0, wait_ms, hand_over_ms)
    session = Session()
    session.add(Loader(t=1.0, pid=MAIN, number=0, window_s=1.0, fetches=10, facts=TRAIN, workers=[turn]))
    return texts(session.over("recent").loaders(MAIN), 116, 10)[3]


def test_what_an_idle_worker_waits_for():
    assert idle(100.0, 890.0, 9.0).endswith("  waits for the trainer")
    assert idle(100.0, 80.0, 819.0).endswith("  hands its batches over")
    assert idle(890.0, 80.0, 29.0).endswith("  –")
    assert idle(100.0, 899.0, None).endswith("  –")  # an old log: waiting holds both


def test_the_beginning_of_an_epoch_is_told():
    started = Loader(t=40.0, pid=MAIN, number=0, window_s=1.0, fetches=5, starts=2, start_ns=10_400 * MS)
    flow = texts(rows(*training(39), started), 196, 10)[1]
    assert "   first batch after 5.2 s an epoch   " in flow


# -- on the board


async def shown(playback, size, *keys):
    app = TuimonApp(playback, refresh_s=3600, capabilities=Capabilities())
    async with app.run_test(size=size) as pilot:
        app.tick()
        await pilot.press(*keys)
        await pilot.pause()
        return {pane.id for pane in app.board.panes if pane.display}


async def test_shown_by_itself_where_there_is_room():
    assert "loaders" in await shown(monitor(*training()), (120, 40))
    assert "loaders" in await shown(monitor(*training()), (200, 60))
    assert "loaders" not in await shown(monitor(*training()), (80, 24))
    assert "loaders" not in await shown(monitor(evaluating(1.0)), (120, 40))


def test_without_a_loader():
    assert texts((), 116, 10) == [
        "No DataLoader seen: the loop makes its batches itself, has not begun, or leaves no markers."
    ]


async def test_its_key_shows_and_hides_it():
    assert "loaders" not in await shown(monitor(*training()), (120, 40), "6")
    assert "loaders" in await shown(monitor(*training()), (80, 24), "6")
