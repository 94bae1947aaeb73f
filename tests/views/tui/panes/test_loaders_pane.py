"""The panes of loaders and threads: their lines at every width, their place on the board, their keys."""

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.session.records import (
    MS,
    extend,
    frames,
    header,
    hot_lines,
    one_process,
    process,
    session_of,
    stacks,
    threads,
)
from tests.session.stacks import profiles
from tests.views import streams
from tests.views.playback import MAIN
from tests.views.tui.profile.samples import play
from tests.views.tui.running_app import running, text
from tuimon.native_code import NativeUse
from tuimon.records import Exit, Loader, LoaderFacts, LoaderWorker, Notice, ThreadFaults
from tuimon.session.session import Session
from tuimon.session.threads import ThreadRow
from tuimon.views.report.report import loaders_of, parts_of
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.drawing.lines import head_line, line_width, row_line, text_of
from tuimon.views.tui.panes.loaders_pane import loaders_lines
from tuimon.views.tui.panes.threads_pane import ThreadsPane, matches, thread_columns, thread_lines, with_helpers_folded
from tuimon.views.tui.terminal_app import Capabilities

TRAIN = LoaderFacts(
    dataset="ImageSet", kind="map", workers=2, prefetch=2, batch_size=32, pin_memory=True, context="fork"
)
EVAL = LoaderFacts(dataset="[bold]Stream\x1b[31m", kind="iterable", workers=0)


def training(seconds=40, workers=2):
    facts = replace(TRAIN, workers=workers)
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
    return loaders_of(now.of(MAIN))


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


@pytest.fixture(scope="module")
def few_and_many():
    return rows(*training()), rows(*training(workers=64), evaluating(40.0)), rows(evaluating(1.0))


@pytest.mark.parametrize("width", [36, 50, 60, 76, 96, 116, 196])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 6, 12, 30])
def test_lines_fit(width, height, few_and_many):
    for loaders in few_and_many:
        lines = loaders_lines(loaders, width, height)
        assert len(lines) <= height
        assert all(cell_len(text_of(row)) <= width for row in lines)


def test_what_was_not_measured_is_absent():
    session = Session()
    session.add(Loader(t=1.0, pid=MAIN, number=0, window_s=1.0, fetches=0, facts=TRAIN, workers=[LoaderWorker(7, 0)]))
    (row,) = session.over("recent").of(MAIN).loaders
    assert (row.wait_ms, row.wait_p95_ms, row.ready_mean, row.ready_none_ratio, row.latest.role) == (None,) * 5
    assert row.worker_rows[0].busy_ratio is None and row.worker_rows[0].items_ms is None
    lines = texts((row,), 116, 10)
    assert lines[1].endswith("wait –  p95 –   0 batches/s   none ready –")
    assert lines[3].split() == ["worker", "0", "–", "─" * 20, "–", "–", "–", "–", "–"]


def idle(items_ms, wait_ms, hand_over_ms):
    turn = LoaderWorker(7, 0, 10, items_ms, 1.0, wait_ms, hand_over_ms)
    session = session_of(Loader(t=1.0, pid=MAIN, number=0, window_s=1.0, fetches=10, facts=TRAIN, workers=[turn]))
    return texts(session.over("recent").of(MAIN).loaders, 116, 10)[3]


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


def test_filter_looks_everywhere():
    (row, *_) = streams.input_bound(3).session.over("recent").threads()
    assert all(matches(row, text) for text in ("MAIN", "4242", "loader", "train.py:44", "waiting", ""))
    assert not matches(row, "worker")


async def test_threads_of_several_ranks_name_theirs():
    monitor = play()
    for rank in range(3):
        pid = 7000 + rank
        monitor.session.add(process(pid, rank=rank, world_size=3))
        monitor.session.add(threads(9.0, (pid, "python", 0.1 * rank, "running"), pid=pid))
    async with running(monitor, (120, 50)) as (app, _pilot):
        found = [row for row in text(app, "threads").splitlines() if row.startswith("rank")]
        assert [row.split()[:4] for row in found] == [
            ["rank", f"{rank}:", "main", f"{7000 + rank}"] for rank in range(3)
        ]
        app.board.threads.filter_by("rank 1: main")
        assert [row.pid for row in app.board.threads.shown()] == [7001]


@pytest.mark.parametrize(("covered", "is_shown"), [(True, False), (False, True)])
def test_no_notice_denies_samples_that_there_are(covered, is_shown):
    text = "no stack samples: py-spy was not found"
    session = one_process(Notice(t=1.0, pid=0, source="stacks", level="warning", message=text))
    if covered:
        extend(session, frames(("train.py", 1, "f")), stacks(3.0, ([0], 20)))
    notes = ThreadsPane().collect(parts_of(session.shown()), ()).notes
    assert any(text in note for note in notes) == is_shown


@pytest.mark.parametrize(
    ("end", "says"), [((), "no thread seen yet"), ((Exit(t=2.0, pid=0, exit_code=1),), "no thread seen")]
)
def test_without_threads_it_says_whether_any_may_come(end, says):
    pane = ThreadsPane()
    state = pane.collect(parts_of(session_of(header(), *end).shown()), ())
    assert text_of(pane.draw(state, 80, 5)[1]).strip() == says


# -- helpers share rows; what trains and loads keeps its own


COMPILER = ["python3", "/site-packages/torch/_inductor/compile_worker/__main__.py", "--kind=fork"]


def row(pid, tid, role, cpu=0.1, **more):
    return ThreadRow(pid, tid, role, role, cpu, "waiting", 0.0, None, **more)


def test_compile_workers_are_one_row_whatever_their_number():
    rows = [row(1, 1, "main", 0.9), *(row(pid, pid, "python3", 0.1) for pid in range(10, 26))]
    processes = [process(1), *(process(pid, "other", command=COMPILER) for pid in range(10, 26))]
    main, folded = with_helpers_folded(rows, processes)
    assert main == rows[0]
    assert (folded.role, folded.count, round(folded.cpu_ratio, 3)) == ("compile workers", 16, 1.6)


# -- threads as rows of the table, and one thread whole


MAIN_ROW = ThreadRow(4242, 4242, "main", "python", 0.38, "waiting", 0.01, None)


@pytest.mark.parametrize("width", [36, 60, 76, 96, 116, 196])
def test_thread_rows_fill_their_width(width):
    rows = [*streams.input_bound(3).session.over("recent").threads(), MAIN_ROW]
    columns = thread_columns(rows, width)
    for row in rows:
        assert cell_len(text_of(row_line(columns, row))) <= max(width, 40)


def test_a_long_files_name_leaves_its_line_to_be_read():
    (row, *_) = streams.input_bound(3).session.over("recent").threads()
    place = row.place._replace(file="/me/finetune_everything_on_one_machine.py", line=701)
    row = replace(row, place=place)
    (hot, *_) = hot_lines(streams.input_bound(3).session.over("recent"), MAIN)
    hot = hot._replace(place=place)
    for width in (80, 120):
        assert ":701 " in text_of(row_line(thread_columns([row], width), row))
    assert ":701 " in text_of(thread_lines(row, [hot], 100)[-1]).rstrip()


def test_who_holds_the_gil_is_a_column_once_it_was_looked_at():
    (row, *_) = profiles.session(2).over("recent").threads()
    assert "gil" not in text_of(head_line(thread_columns([row], 120), "role"))
    rows = [replace(row, gil_ratio=0.42), replace(row, tid=9, gil_ratio=None)]
    columns = thread_columns(rows, 120)
    assert "gil" in text_of(head_line(columns, "role"))
    assert " 42 % " in text_of(row_line(columns, rows[0]))
    assert line_width(row_line(columns, rows[1])) == line_width(row_line(columns, rows[0])) == 120
    assert "gil" not in [column.name for column in thread_columns(rows, 80)]
    assert "held 42 % of the time" in text_of(thread_lines(rows[0], [], 80)[7])


@pytest.mark.parametrize(("major", "end"), [(0.2, "pages of memory a second"), (31.0, "a second, 31 read from a disk")])
def test_a_thread_s_page_faults_are_in_its_sheet(major, end):
    shown = [text_of(each) for each in thread_lines(replace(MAIN_ROW, faults=ThreadFaults(7, 52e3, major)), [], 100)]
    (faults,) = (each for each in shown if each.startswith("faults"))
    assert "52,000 new pages" in faults and faults.rstrip().endswith(end)
    assert not any(text_of(each).startswith("faults") for each in thread_lines(MAIN_ROW, [], 100))


def test_what_a_thread_runs_below_python_stands_where_it_has_no_line_and_by_phase_in_its_sheet():
    use = NativeUse({("OpenMP", "backward"): 60, ("torch", "backward"): 20, ("kernel", ""): 20})
    idle = replace(MAIN_ROW, tid=9, role="intra-op", native=use)
    assert "waiting in OpenMP 60 %, torch 20 %" in text_of(row_line(thread_columns([idle], 110), idle))
    wide = thread_columns([MAIN_ROW, idle], 196)
    assert "runs" in text_of(head_line(wide, "role"))
    assert "waiting in OpenMP 60 % " in text_of(row_line(wide, idle))
    sheet = [text_of(each) for each in thread_lines(idle, [], 100)]
    (backward,) = (each for each in sheet if each.startswith("backward"))
    assert " 80 % " in backward and backward.rstrip().endswith("waiting in OpenMP 75 %, torch 25 %")
    assert any(each.startswith("no phase ") and each.rstrip().endswith("kernel 100 %") for each in sheet)
