"""The app under Pilot: what every key does, where panes are placed, the whole screen."""

import contextlib
import itertools
import json
import threading
from importlib.metadata import version

import pytest
import textual
from msgspec import structs

from tests.recorded_logs import log_path
from tests.views import streams
from tests.views.playback import Playback
from tests.views.tui.running_app import ALL, notices, running, text, visible
from tuimon.errors import CannotInject
from tuimon.new_files import create_private
from tuimon.records import Notice, Place
from tuimon.sources.log.source import read_records
from tuimon.views.tui.app import TuimonApp, editor_command
from tuimon.views.tui.board import MIN_HEIGHT, MIN_WIDTH, Box, Pacing, lay_out
from tuimon.views.tui.drawing.canvas import Canvas, Pane
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.sheets.sheet import InjectDialog
from tuimon.views.tui.sheets.stack_sheets import ThreadSheet
from tuimon.views.tui.terminal_app import Capabilities


async def test_the_first_paint_shows_everything_and_reading_begins_after_it(monkeypatch):
    painted = []
    render_lines = Canvas.render_lines

    def noting(canvas, crop):
        strips = render_lines(canvas, crop)
        painted.append((canvas.id, "".join(strip.text for strip in strips)))
        return strips

    monkeypatch.setattr(Canvas, "render_lines", noting)
    begin = painted.append
    app = TuimonApp(
        streams.input_bound(5), refresh_s=3600, capabilities=Capabilities(), begin=lambda: begin(("begin", ""))
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
    names = [name for name, _ in painted]
    first = {name: painted[names.index(name)][1] for name in set(names)}
    assert "Step" in first["step"] and "47.1 ms" in first["step"] and "worker 0" in first["threads"]
    assert "quit" in first["keys"] and "tuimon" in first["keys"]
    assert names.count("begin") == 1 and names.index("begin") > max(names.index(name) for name in ("step", "keys"))


async def test_only_changed_lines_are_painted_again():
    async with running(streams.input_bound(5)) as (app, pilot):
        painted = []
        threads = app.board.threads
        threads.refresh = lambda *regions, **_: painted.extend(regions) or threads
        app.tick()
        await pilot.pause()
        assert painted == []
        threads.show_lines([*threads.lines[:3], (), *threads.lines[4:]])
        assert [region.y for region in painted] == [3]


@pytest.mark.parametrize(
    ("key", "name"), list(zip("12345", ("step", "gpu", "output", "threads", "verdict"), strict=True))
)
async def test_digits_hide_and_show_panes(key, name):
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press(key)
        assert visible(app) == ALL - {name}
        await pilot.press(key)
        assert visible(app) == ALL


async def test_a_digit_shows_a_pane_without_room_alone():
    async with running(streams.input_bound(5), size=(80, 24)) as (app, pilot):
        before = visible(app)
        assert "output" not in before
        await pilot.press("3")
        assert visible(app) == {"verdict", "output"} and app.focused is app.board.output
        await pilot.press("3")
        assert visible(app) == before


async def test_zoom_and_back():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("up", "z")  # without a focus, an arrow goes to the threads
        assert visible(app) == {"verdict", "threads"}
        await pilot.press("escape")
        assert visible(app) == ALL and app.focused is app.board.threads
        await pilot.press("tab", "tab", "enter")  # threads -> verdict -> step
        assert visible(app) == {"verdict", "step"}
        await pilot.press("z")
        assert visible(app) == ALL


async def test_tab_goes_round():
    async with running(streams.input_bound(5)) as (app, pilot):
        seen = []
        assert app.focused is None
        for _ in range(6):
            await pilot.press("tab")
            seen.append(app.focused.id)
        assert seen == ["verdict", "step", "gpu", "output", "threads", "verdict"]
        await pilot.press("shift+tab")
        assert app.focused.id == "threads"


async def test_a_pane_that_is_a_line_gets_no_focus_which_would_show_nothing_else():
    async with running(streams.no_gpu(5)) as (app, pilot):
        for _ in range(6):
            await pilot.press("tab")
            assert app.focused is not app.board.gpu
        assert app.board.gpu.has_class("-line")


RECORDED = {
    "ranks": "one process trains here",
    "trace": "the log has no trace",
    "zoom": "Tab chooses a pane",
    "stacks": "once nothing moves",
    "inject": "only after tuimon attach",
}


@pytest.mark.parametrize(
    ("stream", "live", "idle"),
    [
        ("input_bound", True, {key: RECORDED[key] for key in ("ranks", "zoom", "stacks", "inject")}),
        ("input_bound", False, RECORDED),
        ("ended", False, RECORDED | {"pause": "the run has ended"}),
        ("ranks", True, {key: RECORDED[key] for key in ("zoom", "stacks", "inject")}),
    ],
)
async def test_a_key_with_nothing_to_do_is_not_offered_and_says_why(stream, live, idle):
    monitor = getattr(streams, stream)(windows=12)
    monitor.is_live = live
    async with running(monitor, size=(200, 60)) as (app, pilot):
        keys = {"ranks": "r", "trace": "K", "pause": "space", "zoom": "z", "stacks": "S", "inject": "I"}
        offered = {name for name in keys if f"{keys[name]} {name}" in text(app, "keys")}
        assert offered == keys.keys() - idle.keys()
        for name, reason in idle.items():
            await pilot.press(keys[name])
            assert reason in notices(app)[-1].message


# -- handing a finding on


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({"EDITOR": "nano -l"}, ["nano", "-l", "+31", "a b.py"]),
        ({"EDITOR": "nano", "VISUAL": "/usr/bin/code --wait"}, ["/usr/bin/code", "--wait", "--goto", "a b.py:31"]),
        ({"EDITOR": "hx"}, ["hx", "a b.py:31"]),
        ({"PATH": "/nowhere"}, None),
    ],
)
def test_the_editor_is_the_one_of_the_environment(environ, command):
    assert editor_command(environ, "a b.py", 31) == command


async def test_the_verdict_s_line_is_opened_while_the_training_goes_on(tmp_path, monkeypatch):
    line, monitor = tmp_path / "train.py", streams.input_bound(5)
    line.write_text("x\n")
    opened = tmp_path / "opened"
    monkeypatch.setenv("VISUAL", f"sh -c 'echo $1 > {opened}' sh")
    suspensions = []
    monkeypatch.setattr(TuimonApp, "suspend", lambda app: contextlib.nullcontext(suspensions.append(app)))
    (found,) = monitor.findings = [structs.replace(streams.INPUT_BOUND, where=(Place(str(line), 31, "f"),))]
    async with running(monitor) as (app, pilot):
        for keys in (("o",), ("v", "o")):
            await pilot.press(*keys)
            await app.workers.wait_for_complete()
            assert opened.read_text() == "+31\n"
            opened.unlink()
        app.action_edit()
        app.action_edit()  # the key was held, and the editor has not yet begun
        await app.workers.wait_for_complete()
        assert len(suspensions) == 3
        opened.unlink()
        monitor.findings = [structs.replace(found, where=(Place("/gone/train.py", 31, "f"),))]
        await pilot.press("escape", "o")
        assert notices(app)[-1].message == "train.py:31 is not on this machine"
        monitor.findings = [structs.replace(found, rule="side_work", where=()), found]
        await pilot.press("v", "tab", "o")  # of the sheet's finding, not of the first
        await app.workers.wait_for_complete()
        assert opened.read_text() == "+31\n"
        await pilot.press("escape", "o")
        assert "names no line" in notices(app)[-1].message
        monitor.findings = []
        await pilot.press("o")
        assert "names no line" in notices(app)[-1].message


@pytest.mark.parametrize(
    ("glyphs", "links"), [("braille", {"file://node/data/my%20code/train.py#31"}), ("ascii", set())]
)
async def test_the_place_of_a_verdict_is_a_link_where_the_terminal_has_links(glyphs, links):
    monitor = streams.input_bound(5)
    monitor.session.add(structs.replace(monitor.session.header, host="node"))
    place = Place("/data/my code/train.py", 31, "f")
    monitor.findings = [structs.replace(streams.INPUT_BOUND, where=(place,))]
    async with running(monitor, capabilities=Capabilities(glyphs=glyphs)) as (app, pilot):
        strips = [app.board.verdict.render_line(y) for y in range(4)]
        assert {segment.style.link for strip in strips for segment in strip if segment.style.link} == links
        await pilot.press("v")
        assert {span.style.link for span in app.screen.text.render().spans if span.style.link} == links


async def test_a_finding_is_copied_as_markdown():
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        for keys in (("y",), ("v", "y")):
            app.copy_to_clipboard("")
            await pilot.press(*keys)
            head, place, fix = app.clipboard.splitlines()
            assert head.startswith("INPUT-BOUND: ") and place.startswith("- at `") and fix.startswith("- fix: ")


@pytest.mark.parametrize(("keys", "pane"), [("h down", "profile"), ("r down", "ranks")])
async def test_a_key_that_comes_at_once_goes_to_the_pane_that_the_one_before_chose(keys, pane):
    async with running(streams.ranks()) as (app, pilot):
        for key in keys.split():
            app.simulate_key(key)
        await pilot.pause()
        assert app.focused.id == pane
        assert app.board.threads.chosen() is None


async def test_a_thread_opens_at_keys_that_come_at_once():
    async with running(streams.ranks()) as (app, pilot):
        for key in ("down", "enter"):
            app.simulate_key(key)
        await pilot.pause()
        assert isinstance(app.screen, ThreadSheet)


async def test_filter_threads_by_typing():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("slash", *"worker 1")
        assert "worker 1" in text(app, "threads") and "worker 0" not in text(app, "threads")
        await pilot.press("enter")
        assert app.focused is app.board.threads
        assert "worker 0" not in text(app, "threads")
        await pilot.press("escape")
        assert "worker 0" in text(app, "threads")
        await pilot.press("slash", *"q1zs?", "escape")  # keys typed into the filter do nothing else
        assert app.is_running and visible(app) == ALL
        assert "worker 0" in text(app, "threads")


async def test_a_long_notice_leaves_the_threads_their_rows():
    played = Playback(read_records(str(log_path("h100_check_in_process"))))
    async with running(played) as (app, _):
        assert len(app.board.threads.shown()) == 4
        shown = text(app, "threads")
        assert all(role in shown for role in ("main", "autograd", "native ×19", "CUDA driver ×2", "in-process"))


async def test_s_sorts_the_threads_and_the_cursor_stays_on_its_own():
    def first(app):
        return text(app, "threads").splitlines()[1].split()[0]

    async with running(streams.input_bound(5)) as (app, pilot):
        assert first(app) == "main"
        await pilot.press("end")
        last = app.board.threads.shown()[-1]
        await pilot.press("s")
        assert first(app) == "worker" and "cpu▾" in text(app, "threads")
        assert app.board.threads.shown()[-1] != last
        await pilot.press("s", "s", "s")
        assert first(app) == "main" and "role▾" in text(app, "threads")
        await pilot.press("s", "enter")
        assert str(last.tid) in app.screen.body.border_title


@pytest.mark.parametrize("key", ["space", "p"])
async def test_pause_freezes_the_picture_and_goes_on_folding(key):
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        before = text(app, "step")
        await pilot.press(key)
        assert " PAUSED" in text(app, "title")
        monitor.later = [streams.seconds(6, 1, data_ms=400.0)[0]]
        app.tick()
        await pilot.pause()
        assert text(app, "step") == before
        assert monitor.session.now_s == 6.0
        await pilot.press("down", "s")  # the table can still be looked through
        await pilot.press(key)
        app.tick()
        await pilot.pause()
        assert text(app, "step") != before and " PAUSED" not in text(app, "title")


async def test_export_keeps_report_and_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monitor = streams.input_bound(20)
    monitor.findings = [streams.SIDE_WORK]
    async with running(monitor) as (app, pilot):
        await pilot.press("e")
        await pilot.pause()
        kept = sorted(tmp_path.iterdir())
        assert [path.suffix for path in kept] == [".json", ".svg", ".txt"]
        report = json.loads(kept[0].read_text())
        assert report["schema"] == 1
        assert report["steps"]["count"] > 0
        assert "<svg" in kept[1].read_text() and "url(http" not in kept[1].read_text().replace('"', "")
        assert "INPUT-BOUND" in kept[2].read_text()
        assert report["findings"][0]["rule"] == "input_bound"  # as its phases, of the run so far, not of the moment
        assert len(notices(app)) == 1
        await pilot.press("e")
        await pilot.pause()
        assert len(list(tmp_path.iterdir())) == 6  # nothing is overwritten


async def test_export_says_when_it_cannot(monkeypatch, tmp_path):
    begun = []

    def full(path):
        begun.append(path)
        if len(begun) == 3:
            raise OSError(28, "No space left on device")
        return create_private(path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuimon.sources.outputs.create_private", full)
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("e")
        await pilot.pause()
        (note,) = notices(app)
        assert "No space left" in note.message
    assert list(tmp_path.iterdir()) == []  # neither the report without its picture


async def test_what_no_pane_shows_is_said_once_and_again_when_it_changes():
    def notice(level, message, source="prometheus"):
        return Notice(t=1.0, pid=0, source=source, level=level, message=message, hint="Name another port")

    monitor = streams.input_bound(5)
    full = Notice(t=1.0, pid=0, source="log", level="warning", message="x.jsonl cannot be written: No space left")
    monitor.later = [
        [notice("warning", "[b]in use"), notice("info", "denied", "gpu")],
        [notice("warning", "[b]in use")],
        [notice("info", "served")],
        [full],
    ]
    async with running(monitor) as (app, pilot):
        for _ in range(4):
            app.tick()
        await pilot.pause()
        said = [(note.message, note.severity) for note in notices(app)]
    assert said == [
        ("prometheus: [b]in use – Name another port", "warning"),
        ("prometheus: served – Name another port", "information"),
        ("log: x.jsonl cannot be written: No space left", "warning"),
    ]


# -- when the panes are drawn


def drawn(pacing, changes):
    return "".join("D" if pacing.is_due(change == "x") else "." for change in changes)


def test_once_a_window_at_most():
    assert drawn(Pacing(2), "xxxxx") == "D.D.D"
    assert drawn(Pacing(1), "xxx") == "DDD"
    assert drawn(Pacing(0), "xx") == "DD"


async def test_ticks_without_news_collect_only_the_output(monkeypatch, tmp_path):
    collected = []
    update = Pane.update_state
    monkeypatch.setattr(Pane, "update_state", lambda pane, *now: (collected.append(pane.id), update(pane, *now))[1])
    monitor = streams.input_bound(5)
    app = TuimonApp(monitor, refresh_s=3600, capabilities=Capabilities())
    async with app.run_test(size=(120, 40)) as pilot:
        app.tick()
        await pilot.pause()
        assert "threads" in collected
        collected.clear()
        for _ in range(5):
            app.tick()
        assert set(collected) == {"output"}
        monitor.later = [streams.seconds(6, 1, data_ms=400.0)[0]]
        app.tick()
        await pilot.pause()
        assert "peak" in text(app, "step") or "150 ms" in text(app, "step")


# -- key I: hooks for a training that was attached to


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


async def test_the_key_is_offered_says_what_it_does_and_does_it():
    hooks = Hooks()
    async with running(attached(hooks)) as (app, pilot):
        assert any("press I to measure them" in notice.message for notice in notices(app))
        await pilot.press("I")
        shown = " ".join(text_of(row).strip() for row in app.screen.text.lines)
        assert isinstance(app.screen, InjectDialog) and "stops the training for about 0.1 s" in shown
        assert not hooks.asked.is_set()
        await pilot.press("I")
        await app.workers.wait_for_complete()
        assert notices(app)[-1].message == "hooks brought into process 4242"
        await pilot.press("I")
        assert not isinstance(app.screen, InjectDialog)
        assert notices(app)[-1].message == "the training has its hooks already"


async def test_a_refusal_is_shown_with_its_next_step():
    async with running(attached(Hooks(CannotInject("gdb is not installed", "apt install gdb")))) as (app, pilot):
        await pilot.press("I", "enter")
        await app.workers.wait_for_complete()
        assert notices(app)[-1].message == "gdb is not installed. apt install gdb"


ONE_GPU = {"verdict": 3, "step": 12, "threads": 10, "gpu": 5, "output": 8, "loaders": 1, "ranks": 0}
NO_GPU, NO_OUTPUT, NEITHER = ONE_GPU | {"gpu": 0}, ONE_GPU | {"output": 0}, ONE_GPU | {"gpu": 0, "output": 0}
RANKS = NEITHER | {"ranks": 10}
MANY = ONE_GPU | {"step": 30, "threads": 301, "gpu": 40}
LOADERS = MANY | {"loaders": 80}


def test_a_normal_screen():
    boxes = lay_out(120, 40, ALL, ONE_GPU)
    assert boxes["step"] == Box(0, 4, 60, 20)
    assert boxes["gpu"] == Box(60, 4, 60, 7)
    assert boxes["output"] == Box(60, 11, 60, 13)
    assert boxes["threads"] == Box(0, 24, 120, 15)
    assert boxes["keys"] == Box(0, 39, 120, 1)


def test_without_a_gpu_one_line_says_so():
    boxes = lay_out(120, 40, ALL, NO_GPU)
    assert boxes["gpu"] == Box(0, 38, 120, 1)
    assert boxes["output"].height == boxes["step"].height


def test_a_narrow_screen_has_one_column_by_importance():
    assert set(lay_out(80, 24, ALL, ONE_GPU)) == {"title", "verdict", "keys", "step", "threads", "gpu"}
    assert set(lay_out(80, 24, ALL, NO_GPU)) == {"title", "verdict", "keys", "step", "threads", "gpu", "output"}
    assert set(lay_out(80, 12, ALL, ONE_GPU)) == {"title", "verdict", "step"}
    heights = [lay_out(80, 24, ALL, wanted)["step"].height for wanted in (NEITHER, RANKS)]
    assert heights == [10, 12]  # those of the ranks come before further threads


def test_too_small():
    assert set(lay_out(39, 24, ALL, ONE_GPU)) == set(lay_out(80, 9, ALL, ONE_GPU)) == {"small"}


@pytest.mark.parametrize("wanted", [NO_GPU, ONE_GPU, NO_OUTPUT, NEITHER, MANY, LOADERS, RANKS])
@pytest.mark.parametrize("width", [MIN_WIDTH, 80, 99, 100, 120, 160, 240])
@pytest.mark.parametrize("height", [MIN_HEIGHT, 13, 14, 18, 24, 40, 60, 100])
def test_whatever_is_shown_panes_fit_and_do_not_overlap(width, height, wanted):
    for count in range(6):
        for hidden in itertools.combinations(sorted(ALL), count):
            panes = ALL - set(hidden) | ({"loaders"} if wanted is not ONE_GPU else set())
            boxes = lay_out(width, height, panes, wanted)
            for box in boxes.values():
                assert box.width > 0 and box.height > 0
                assert box.x >= 0 and box.x + box.width <= width
                assert box.y >= 0 and box.y + box.height <= height
            for a, b in itertools.combinations(boxes.values(), 2):
                beside = a.x + a.width <= b.x or b.x + b.width <= a.x
                assert beside or a.y + a.height <= b.y or b.y + b.height <= a.y
            assert not set(hidden) & set(boxes)


def test_with_neither_and_few_rows_the_lines_give_way_first():
    assert "gpu" not in lay_out(120, 12, ALL, NEITHER)
    assert lay_out(120, 12, ALL, NEITHER)["threads"].height == lay_out(120, 12, ALL, NO_OUTPUT)["threads"].height


# The SVG is textual's and rich's: other releases draw the same picture in other words.
RECORDED_WITH = ("8.2.8", "15.0.0")
INSTALLED = (textual.__version__, version("rich"))


@pytest.mark.skipif(INSTALLED != RECORDED_WITH, reason=f"recorded with textual, rich {RECORDED_WITH}")
@pytest.mark.parametrize(
    ("stream", "size", "keys"),
    [
        pytest.param("no_gpu", (80, 24), (), id="80x24"),
        pytest.param("input_bound", (120, 40), (), id="120x40"),
        pytest.param("eight_gpus", (200, 60), ("d",), id="200x60-light"),
        pytest.param("launch_bound", (80, 24), (), id="gpu-80x24"),
        pytest.param("gpu_bound", (120, 40), ("d",), id="gpu-120x40-light"),
        pytest.param("launch_bound", (200, 60), (), id="gpu-200x60"),
        pytest.param("profiled", (80, 24), ("h",), id="lines-80x24"),
        pytest.param("profiled", (120, 40), ("c", "down", "down"), id="tree-120x40"),
    ],
)
def test_the_picture(snap_compare, stream, size, keys):
    async def one_tick(pilot):
        pilot.app.tick()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    app = TuimonApp(getattr(streams, stream)(), refresh_s=3600, capabilities=Capabilities())
    assert snap_compare(app, terminal_size=size, run_before=one_tick)


async def test_a_click_on_a_key_presses_it():
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.click("#keys", offset=(text(app, "keys").index("verdicts"), 0))
        await pilot.pause()
        assert "Findings" in str(app.screen.body.border_title)


async def test_a_drag_over_the_panes_copies_nothing():
    async with running(streams.input_bound(5)) as (app, pilot):
        app.copy_to_clipboard("kept")
        await pilot.mouse_down("#step", offset=(3, 2))
        await pilot.hover("#step", offset=(20, 4))
        await pilot.mouse_up("#step", offset=(20, 4))
        await pilot.pause()
        assert app.clipboard == "kept"
