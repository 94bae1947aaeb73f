"""Where the time goes: hot lines, the call tree and their scope, and the pane under Pilot."""

import pytest

from tests.recorded_logs import log_path
from tests.session.records import steps
from tests.session.stacks import profiles
from tests.session.stacks.profiles import APP, MAIN
from tests.views import streams
from tests.views.playback import Playback
from tests.views.tui.profile.samples import DEEP, HOSTILE, SIZES, Counted, of, play
from tests.views.tui.running_app import running, text, texts
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import fold
from tuimon.records import Exit, Place, RangePlace
from tuimon.session.stacks.samples import RANGE
from tuimon.sources.log.source import read_records
from tuimon.views.tui.drawing.lines import line_width, text_of
from tuimon.views.tui.profile.profile_pane import Scope, blamed, choices_line, empty_lines, filters
from tuimon.views.tui.profile.views import LinesView, TreeView, indent, node_of_line, visible_nodes


def shown(app):
    return [row for row in text(app, "profile").splitlines() if row]


async def test_h_and_c_show_two_views_of_one_thread():
    async with running(play()) as (app, pilot):
        profile = app.board.profile
        assert not profile.display
        await pilot.press("h")
        assert profile.display and app.focused is profile
        assert not app.board.step.display
        assert "for x, y in loader:" in text(app, "profile") and "waits for data" in text(app, "profile")
        await pilot.press("c")
        assert "▾ main" in text(app, "profile")
        await pilot.press("escape")
        assert not profile.display and app.focused is None and app.board.step.display


async def test_opened_again_it_shows_all_phases():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "f")
        of_data = text(app, "profile")
        await pilot.press("c", "h")
        assert text(app, "profile") == of_data
        await pilot.press("escape", "h")
        assert "model.py:21" not in of_data and "model.py:21" in text(app, "profile")


async def test_t_widens_the_scope():
    async with running(play()) as (app, pilot):
        await pilot.press("down", "h")
        seen = []
        for _ in range(4):
            seen.append(shown(app)[0].partition(" t ")[2].split("  ")[0])
            await pilot.press("t")
        assert seen == ["worker 0 · pid 4300", "all 2 worker threads", "process 4300", "the whole run"]
        assert "worker 0 · pid 4300" in shown(app)[0]


async def test_phases_by_f_and_by_arrows():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "f", "f")
        assert "model.py:21" in text(app, "profile") and "train.py:44" not in text(app, "profile")
        await pilot.press("left")
        assert "train.py:44" in text(app, "profile") and "model.py:21" not in text(app, "profile")
        await pilot.press("F", "c")
        assert "▸ backward" in text(app, "profile")
        await pilot.press("f", "f", "f")
        assert "_engine_run_backward" in text(app, "profile") and "__next__" not in text(app, "profile")


async def test_a_thread_without_samples_says_why():
    async with running(play()) as (app, pilot):
        await pilot.press("end", "h")
        assert "autograd" in shown(app)[0] and "no stack samples" in text(app, "profile")
        await pilot.press("c", "down", "right", "left", "enter", "escape")
        assert app.is_running


async def test_enter_on_a_line_shows_it_in_the_tree():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "down", "down", "down", "enter")
        assert "▾ forward" in text(app, "profile") or "forward  model.py" in text(app, "profile")
        assert shown(app)[-1].startswith("forward  ")


async def test_new_samples_keep_cursor_and_folding():
    async with running(play(2, later=3)) as (app, pilot):
        await pilot.press("c", "down", "down", "left")
        before = shown(app)
        assert "▸ __next__" in text(app, "profile")
        samples = app.board.profile.state.samples.total
        app.tick()
        await pilot.pause()
        assert app.board.profile.state.samples.total > samples
        assert shown(app)[3:] == before[3:]


async def test_nothing_is_computed_while_it_is_closed(monkeypatch):
    async with running(play(2, later=3)) as (app, pilot):
        app.tick()
        assert app.board.profile.state is None
        await pilot.press("h", "escape")
        kept = app.board.profile.state
        app.tick()
        await pilot.pause()
        assert app.board.profile.state is kept


async def test_sort_and_library_lines():
    async with running(play()) as (app, pilot):
        await pilot.press("h", "s")
        assert "total▾" in text(app, "profile")
        await pilot.press("s", "u")
        assert "selectors.py:415" in text(app, "profile")
        assert "every line by itself" in str(app.board.profile.border_title)


async def test_clicks():
    async with running(play()) as (app, pilot):
        await pilot.press("c")
        await pilot.click("#profile", offset=(30, 10))
        assert shown(app)[-1].startswith("forward  20.0 %")
        await pilot.click("#profile", offset=(30, 10))
        assert "▾ forward" in text(app, "profile")
        await pilot.press("h")
        await pilot.click("#profile", offset=(30, 9))
        assert app.board.profile.lines_view.rows.selected.place.line == 55


async def test_before_anything_is_known():
    async with running(Playback()) as (app, pilot):
        await pilot.press("h", "t", "c", "f", "t", "down", "up", "escape")
        assert app.is_running


# -- user ranges in the app: ``f`` goes on from the phases to them


PLACE = RangePlace("step", f"{APP}/train.py", "main", 50, 60)


async def test_f_goes_on_from_the_phases_to_the_ranges():
    told = steps(4.0, {"data": 1.0}, count=1, pid=MAIN, range_places=[PLACE])
    async with running(Playback([*profiles.records(3), told])) as (app, pilot):
        await pilot.press("h")
        assert "ranges  step" in text(app, "profile")
        await pilot.press("F")  # back from "all" to the last
        assert app.board.profile.phase == "range:step"
        assert "train.py:55" in text(app, "profile") and "train.py:44" not in text(app, "profile")
        await pilot.press("f")
        assert app.board.profile.phase is None
        assert "train.py:44" in text(app, "profile")


# -- which thread and line the hot lines open on


@pytest.mark.parametrize(("line", "kind"), [(20, "worker"), (33, "main")])
def test_it_is_the_worker_or_the_training_thread_whose_samples_pass_there(line, kind):
    session, _ = fold(read_records(str(log_path("h100_seed_dummy_loader_pyspy"))))
    place = Place("/home/user/train/g02_seed_dummy_loader.py", line, "f")
    found = blamed(session, [Finding(rule="input_bound", severity="critical", headline="waits", where=(place,))])
    assert (found[0].kind, found[1].line) == (kind, line)


async def test_hot_lines_open_there_with_the_code_that_samples_brought():
    monitor = streams.input_bound(5)
    async with running(monitor, (120, 40)) as (app, pilot):
        await pilot.press("h")
        shown = text(app, "profile")
        assert "worker" in shown.splitlines()[0] and "transforms.py:31" in shown.splitlines()[-1]
        assert "31 ▏ out = cv(img, kernel)" in shown


WORKER = Scope(4301, 4301, "worker 1")


@pytest.mark.parametrize(
    ("level", "threads", "samples"),
    [
        ("thread", [(4301, 4301)], 200),
        ("role", [(4300, 4300), (4301, 4301)], 400),
        ("process", [(4301, 4301)], 200),
        ("run", [(MAIN, MAIN), (4300, 4300), (4301, 4301)], 600),
    ],
)
def test_levels(level, threads, samples):
    session = profiles.session(2)
    scope = WORKER._replace(level=level)
    assert scope.threads(session) == threads
    assert sum(sample.count for sample in scope.samples(session).rows) == samples


def test_workers_have_no_phase_the_trainer_has():
    session = profiles.session(2)
    assert {sample.phase for sample in WORKER.samples(session).rows} == {"none"}
    trainer = Scope(MAIN, MAIN, "main").samples(session)
    assert trainer.phases == {"data": 124, "forward": 40, "backward": 20, "optimizer": 8, "other": 8}


async def test_once_the_run_has_ended_they_are_of_all_of_it_as_in_all_panes():
    monitor = Playback([*profiles.records(90), Exit(t=92.0, pid=MAIN, exit_code=0)])
    async with running(monitor) as (app, pilot):
        await pilot.press("h")
        pane = app.board.profile
        whole = monitor.session.over("whole").of(MAIN).samples
        assert pane.state.samples.total == whole.total > monitor.session.over("recent").of(MAIN).samples.total
        assert "whole run" in pane.border_title


# -- what stands around the views of the profile


@pytest.fixture
def trainer():
    """The samples of a training thread."""
    return Scope(MAIN, MAIN, "main").samples(profiles.session(2))


def test_phases_with_their_shares(trainer):
    spans = choices_line(trainer, "forward", 116)
    assert "data 62 %" in text_of(spans) and "other 4 %" in text_of(spans)
    assert next(span for span in spans if "forward" in span.text).role == "forward badge"
    assert line_width(choices_line(trainer, None, 76)) <= 76
    assert "optimizer 4%" in text_of(choices_line(trainer, None, 76))


def test_user_ranges_have_a_line_of_their_own_and_are_filters():
    ranges = [f"step/{'part' * 3} {i}" for i in range(8)]
    samples = [Counted([0], 10, "other", ranges=("step", path)) for path in ranges]
    profile = of(*samples, Counted([0], 20, "eval"))
    listed = filters(profile)
    assert listed[:7] == (None, "data", "forward", "backward", "optimizer", "other", "eval")
    assert listed[7:] == (f"{RANGE}step", *(RANGE + path for path in ranges))
    row = text_of(choices_line(profile, None, 116, ranges=True))
    assert row.startswith(" ranges ") and "step 80 %" in row
    for path in ranges:
        spans = choices_line(profile, RANGE + path, 76, ranges=True)
        assert line_width(spans) <= 76
        assert next(span.text for span in spans if span.role == "key badge") == f" {path} 10% "
    assert "range" not in text_of(choices_line(profile, None, 200))
    assert "eval 20 %" in text_of(choices_line(profile, None, 200))
    assert profile.where(phase=f"{RANGE}step").total == 80
    assert profile.table(f"{RANGE}{ranges[0]}").samples == 10
    assert "the range gone" in text_of(empty_lines(profile, f"{RANGE}gone")[1])


def test_why_there_is_nothing():
    assert "no stack samples" in texts(empty_lines(of(), None))[1]
    assert "no sample in eval" in texts(empty_lines(of(Counted([0], 1, "data")), "eval"))[1]
    assert "these threads have none" in texts(empty_lines(of(Counted([0], 1, "none")), "data"))[1]


def test_the_hottest_path_is_open_at_first(trainer):
    rows = texts(TreeView().draw(trainer, None, 116, 14))
    assert rows[:10] == [
        " total               self  function",
        " 100 % ███████████         ▾ <module>  train.py:90  main()",
        " 100 % ███████████    2 %    ▾ main  train.py:44  for x, y in loader:",
        "  62 % ██████▉                 ▾ __next__  dataloader.py:733  ← for x, y in loader:",
        "  62 % ██████▉                   ▾ _try_get_data  dataloader.py:1488",
        "  62 % ██████▉       62 %            select  selectors.py:415",
        "  20 % ██▎            6 %      ▸ forward  model.py:21  x = self.conv(x)",
        "  10 % █▏                      ▸ backward  _tensor.py:630  ← loss.backward()",
        "   4 % ▌                       ▸ wrapper  optimizer.py:485  ← opt.step()",
        "   2 % ▎              2 %        log  metrics.py:8  time.sleep(0.001)",
    ]
    assert rows[-1] == "<module>  100.0 % total, 0.0 % self  /home/me/project/train.py:90"


def test_fold_and_unfold(trainer):
    view = TreeView()

    def functions():
        view.draw(trainer, None, 116, 20)
        return [node.function for node in visible_nodes(trainer.tree(None), view.opened)]

    assert functions()[2] == "__next__"
    view.rows.move(2)
    view.sideways(-1)
    assert functions()[2:4] == ["__next__", "forward"]
    view.rows.move(1)
    view.sideways(1)
    assert functions()[3:6] == ["forward", "_conv_forward", "backward"]
    view.sideways(1)
    functions()
    assert view.rows.selected.function == "_conv_forward"
    view.sideways(-1)
    view.sideways(-1)
    assert functions()[3:5] == ["forward", "backward"]
    assert view.rows.selected.function == "forward"
    view.enter()
    assert functions()[3:5] == ["forward", "_conv_forward"]


def test_one_key_opens_a_call_as_far_as_its_fork():
    profile = of(Counted([0, 10, 12, 8], 1, "data"), Counted([0, 10, 16, 8], 1, "data"), Counted([21], 90, "other"))
    view = TreeView()
    view.draw(profile, None, 116, 20)
    view.rows.move(1)
    view.sideways(1)
    view.draw(profile, None, 116, 20)
    opened = [node.depth for node in visible_nodes(profile.tree(None), view.opened)]
    assert opened == [1, 1, 2, 3, 3]


def test_a_node_that_has_gone_leaves_the_cursor_with_its_caller(trainer):
    view = TreeView()
    view.draw(trainer, None, 116, 20)
    view.rows.move(3)
    view.draw(trainer, None, 116, 20)
    fewer = of(Counted([0, 1], 5, "data"))
    view.draw(fewer, None, 116, 20)
    assert view.rows.selected.function == "main"


def test_deep_indents_say_how_deep_they_are():
    assert indent(3, 116) == "      "
    assert indent(3, 60) == "   "
    assert indent(100, 90) == " " * 25 + "+100 "
    assert len(indent(100_000, 90)) == 30


def test_from_a_line_to_its_node(trainer):
    tree = trainer.tree(None)
    row = next(row for row in trainer.table().lines if row.place.line == 24)
    node = node_of_line(tree, row)
    assert (node.function, 24 in node.lines) == ("forward", True)
    view = TreeView()
    view.reveal(node)
    assert node in visible_nodes(tree, view.opened)
    view.draw(trainer, None, 116, 20)
    assert view.rows.selected.id == node.id


@pytest.mark.parametrize("profile", [HOSTILE, DEEP, of()], ids=["hostile", "deep", "empty"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_lines_fit_and_are_printable(profile, width, height):
    tree = TreeView()
    for lines in (LinesView().draw(profile, None, width, height, on_gpu=True), tree.draw(profile, None, width, height)):
        assert len(lines) == height
        assert all(text_of(row).isprintable() for row in lines)
    tree.rows.move(3), tree.rows.move(-1), tree.sideways(1), tree.sideways(-1), tree.enter()
    assert len(tree.draw(profile, None, width, height)) == height


# -- hot lines


def test_hot_lines(trainer):
    rows = texts(LinesView().draw(trainer, None, 116, 14, on_gpu=True))
    assert rows[0] == "● waits for data 62 %  ● launching 28 %  ● GPU sync 8 %  ● sleeps 2 %"
    assert rows[2:6] == [
        " self▾              total doing            line          code",
        "  62 % ██████▎       62 % waits for data   train.py:44   for x, y in loader:",
        "  14 % █▍            14 % launching        model.py:21   x = self.conv(x)",
        "  10 % █             10 % launching        train.py:55   loss.backward()",
    ]
    assert rows[-1] == "main()  62.0 % self, 62.0 % total  /home/me/project/train.py:44"


def test_the_cursor_stays_on_its_line_when_others_overtake_it(trainer):
    view = LinesView()
    view.draw(trainer, None, 116, 14, on_gpu=True)
    view.rows.move(2)
    assert view.rows.selected.place.line == 55
    changed = of(Counted([0, 3, 13, 14], 90, "backward"), Counted([0, 1, 6, 7, 8], 10, "data"))
    view.draw(changed, None, 116, 14, on_gpu=True)
    assert view.rows.selected.place.line == 55
    view.draw(of(Counted([0, 1], 1, "data")), None, 116, 14, on_gpu=True)
    assert view.rows.selected.place.line == 44


def test_scrolled_to_the_cursor():
    many = of(
        *(Counted([n], 300 - n, "none") for n in range(200)),
        places=[("m.py", n + 1, "f", f"line {n}", True) for n in range(200)],
    )
    view = LinesView()
    view.draw(many, None, 80, 14, on_gpu=True)
    view.rows.move(100_000)
    rows = texts(view.draw(many, None, 80, 14, on_gpu=True))
    assert "line 199" in rows[-2]
    assert len(rows) == 14
