"""Hot lines, call tree and icicle as they are drawn, without an app."""

import itertools
from dataclasses import replace

import pytest

from tests.session.samples import profiles
from tests.session.samples.profiles import MAIN
from tests.session.samples.test_tree import table
from tuimon.session.samples.classify import Sample
from tuimon.session.samples.range_join import RANGE
from tuimon.session.samples.sample_profile import SampleProfile
from tuimon.session.samples.tree import CallTree
from tuimon.session.scope import Scope
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.panes.thread_rows import header_line, layout, thread_line, thread_lines
from tuimon.views.tui.profile.calltree import TreeView, indent, visible_nodes
from tuimon.views.tui.profile.header import empty_lines, filters, phases_line, ranges_line, tabs_line, who_text
from tuimon.views.tui.profile.hotlines import LinesView
from tuimon.views.tui.profile.icicle import IcicleView, blocks, under
from tuimon.views.tui.profile.tree_cursor import TreeCursor, node_of_line

SIZES = [(36, 6), (76, 18), (116, 30), (196, 50)]


def of(*samples, places=profiles.PLACES):
    return SampleProfile(samples, table(*places))


@pytest.fixture
def trainer():
    session = profiles.session(2)
    return SampleProfile(Scope(MAIN, MAIN, "main").samples(session), session.frames)


HOSTILE = of(
    Sample([0, 1], 3, "data"),
    Sample([0], 2, "other"),
    places=(
        ("/tmp/[bold]x[red]\x1b[31m.py", 3, "f[red]\x07", "print('漢字')\x1b[2J" * 40, True),
        ("/tmp/" + "日本語" * 60 + ".py", 7, "関数" * 80, "", True),
    ),
)
DEEP = of(
    Sample([0] + [1, 2] * 250, 90, "forward"),
    Sample([0, 3], 10, "other"),
    places=(("d.py", 1, "main", "walk(0)", True), ("d.py", 5, "walk", "step(n)", True), ("d.py", 9, "step", "", True),
            ("d.py", 30, "log", "", True)),
)  # fmt: skip


def texts(lines):
    return [text_of(row).rstrip() for row in lines]


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


def test_without_a_gpu_torch_does_the_work_where_it_is_called(trainer):
    rows = texts(LinesView().draw(trainer, None, 116, 14, on_gpu=False))
    assert rows[0] == "● waits for data 62 %  ● torch 36 %  ● sleeps 2 %"
    assert not any("GPU sync" in row or "launching" in row for row in rows)


def test_lines_by_total(trainer):
    view = LinesView()
    view.sort = 1
    rows = texts(view.draw(trainer, None, 116, 14, on_gpu=True))
    assert rows[3].endswith("train.py:90   main()")
    assert "total▾" in rows[2]


def test_the_cursor_stays_on_its_line_when_others_overtake_it(trainer):
    view = LinesView()
    view.draw(trainer, None, 116, 14, on_gpu=True)
    view.move(2)
    assert view.selected().place.line == 55
    changed = of(Sample([0, 3, 13, 14], 90, "backward"), Sample([0, 1, 6, 7, 8], 10, "data"))
    view.draw(changed, None, 116, 14, on_gpu=True)
    assert view.selected().place.line == 55
    view.draw(of(Sample([0, 1], 1, "data")), None, 116, 14, on_gpu=True)
    assert view.selected().place.line == 44


def test_scrolled_to_the_cursor():
    many = of(
        *(Sample([n], 300 - n, "none") for n in range(200)),
        places=[("m.py", n + 1, "f", f"line {n}", True) for n in range(200)],
    )
    view = LinesView()
    view.draw(many, None, 80, 14, on_gpu=True)
    view.move(100_000)
    rows = texts(view.draw(many, None, 80, 14, on_gpu=True))
    assert "line 199" in rows[-2]
    assert len(rows) == 14


# -- call tree


def test_the_hottest_path_is_open_at_first(trainer):
    rows = texts(TreeView(TreeCursor()).draw(trainer, None, 116, 14))
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
    view = TreeView(TreeCursor())

    def functions():
        view.draw(trainer, None, 116, 20)
        return [node.function for node in visible_nodes(trainer.tree(None), view.cursor.opened)]

    assert functions()[2] == "__next__"
    view.move(2)
    view.fold()
    assert functions()[2:4] == ["__next__", "forward"]
    view.move(1)
    view.unfold()
    assert functions()[3:6] == ["forward", "_conv_forward", "backward"]
    view.unfold()
    functions()
    assert view.cursor.selected(trainer.tree(None)).function == "_conv_forward"
    view.fold()
    view.fold()
    assert functions()[3:5] == ["forward", "backward"]
    assert view.cursor.selected(trainer.tree(None)).function == "forward"
    view.toggle()
    assert functions()[3:5] == ["forward", "_conv_forward"]


def test_one_key_opens_a_call_as_far_as_its_fork():
    profile = of(Sample([0, 10, 12, 8], 1, "data"), Sample([0, 10, 16, 8], 1, "data"), Sample([21], 90, "other"))
    view = TreeView(TreeCursor())
    view.draw(profile, None, 116, 20)
    view.move(1)
    view.unfold()
    view.draw(profile, None, 116, 20)
    opened = [node.depth for node in visible_nodes(profile.tree(None), view.cursor.opened)]
    assert opened == [1, 1, 2, 3, 3]


def test_cursor_and_folding_survive_new_samples(trainer):
    view = TreeView(TreeCursor())
    view.draw(trainer, None, 116, 20)
    view.move(5)
    before = view.cursor.selected(trainer.tree(None)).function
    assert before == "forward"
    session = profiles.session(4)
    later = SampleProfile(Scope(MAIN, MAIN, "main").samples(session), session.frames)
    rows = view.draw(later, None, 116, 20)
    assert view.cursor.selected(later.tree(None)).function == before
    assert rows[6][0].role.endswith("cursor")


def test_a_node_that_has_gone_leaves_the_cursor_with_its_caller(trainer):
    view = TreeView(TreeCursor())
    view.draw(trainer, None, 116, 20)
    view.move(3)
    fewer = of(Sample([0, 1], 5, "data"))
    view.draw(fewer, None, 116, 20)
    assert view.cursor.selected(fewer.tree(None)).function == "main"


def test_what_is_folded_away_shows_the_cursor_at_its_caller(trainer):
    view = TreeView(TreeCursor())
    view.draw(trainer, None, 116, 20)
    view.move(4)
    view.cursor.opened.clear()
    rows = view.draw(trainer, None, 116, 20)
    assert "<module>" in text_of(rows[1]) and rows[1][0].role.endswith("cursor")


def test_deep_indents_say_how_deep_they_are():
    assert indent(3, 116) == "      "
    assert indent(3, 60) == "   "
    assert indent(100, 90) == " " * 25 + "+100 "
    assert len(indent(100_000, 90)) == 30


def test_from_a_line_to_its_node(trainer):
    tree = trainer.tree(None)
    row = next(row for row in trainer.lines().lines if row.place.line == 24)
    node = node_of_line(tree, row)
    assert (node.function, 24 in node.lines) == ("forward", True)
    cursor = TreeCursor()
    cursor.reveal(node)
    assert node in visible_nodes(tree, cursor.opened)
    assert cursor.selected(tree) is node


# -- icicle


def test_icicle_widths_are_shares(trainer):
    tree = trainer.tree(None)
    rows = blocks(tree, tree.root, 100, 10)
    assert [(b.node.function, b.x, b.width) for b in rows[3]] == [
        ("__next__", 0, 62), ("forward", 62, 20), ("backward", 82, 10), ("wrapper", 92, 4), ("log", 96, 2)
    ]  # fmt: skip
    assert len(rows) == 6  # as deep as the deepest stack, the root included


@pytest.mark.parametrize("width", [1, 7, 50, 133])
def test_blocks_stay_within_their_parents(trainer, width):
    tree = trainer.tree(None)
    rows = blocks(tree, tree.root, width, 10)
    for upper, lower in itertools.pairwise(rows):
        spans = {block.node.id: (block.x, block.x + block.width) for block in upper}
        ends = 0
        for block in lower:
            start, end = spans[block.node.parent.id]
            assert start <= block.x < block.x + block.width <= end
            assert block.x >= ends
            ends = block.x + block.width


def test_zoom_takes_the_whole_width_and_keeps_the_way_there(trainer):
    tree = trainer.tree(None)
    forward = next(node for node in tree.root.walk() if node.function == "forward")
    rows = blocks(tree, forward, 80, 10)
    assert [[(b.node.function, b.width) for b in row] for row in rows] == [
        [("all", 80)], [("<module>", 80)], [("main", 80)], [("forward", 80)], [("_conv_forward", 56)]
    ]  # fmt: skip


def test_moving_in_the_icicle(trainer):
    view = IcicleView(TreeCursor())

    def at():
        view.draw(trainer, None, 100, 20)
        return view.cursor.selected(trainer.tree(None)).function

    assert at() == "<module>"
    view.move(2)
    assert at() == "__next__"
    view.sideways(1)
    assert at() == "forward"
    view.sideways(-5)
    view.sideways(3)
    assert at() == "wrapper"
    view.sideways(9)
    assert at() == "log"
    view.sideways(-1)
    assert at() == "wrapper"
    view.move(-9)
    assert at() == "all"
    view.move(3)
    view.zoom_in()
    assert at() == "__next__"
    assert view.zoom_out()
    at()
    assert not view.zoom_out()


def test_a_click_selects_the_block(trainer):
    view = IcicleView(TreeCursor())
    view.draw(trainer, None, 100, 20)
    assert not view.click(70, 3)
    assert view.click(70, 3)
    assert view.cursor.selected(trainer.tree(None)).function == "forward"
    assert not view.click(99, 3)
    assert under([], 0, 0) is None


def test_the_icicle_scrolls_to_what_is_selected():
    view = IcicleView(TreeCursor())
    view.draw(DEEP, None, 80, 20)
    view.move(100_000)
    view.draw(DEEP, None, 80, 20)
    view.move(100_000)
    rows = texts(view.draw(DEEP, None, 80, 20))
    assert len(rows) == 20
    selected = view.cursor.selected(DEEP.tree(None))
    assert selected.depth > 30
    assert any("▸" in row for row in rows)


# -- all three


@pytest.mark.parametrize("profile", [HOSTILE, DEEP, of()], ids=["hostile", "deep", "empty"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_lines_fit_and_are_printable(profile, width, height):
    cursor = TreeCursor()
    tree, icicle = TreeView(cursor), IcicleView(cursor)
    drawn = [
        LinesView().draw(profile, None, width, height, on_gpu=True),
        tree.draw(profile, None, width, height),
        icicle.draw(profile, None, width, height),
    ]
    for lines in drawn:
        assert len(lines) == height
        assert all(text_of(row).isprintable() for row in lines)
    assert all(cells(row) <= width for row in drawn[2][:-1])
    for view in (tree, icicle):
        view.move(3)
        view.move(-1)
    tree.unfold(), tree.fold(), tree.toggle(), icicle.sideways(1), icicle.zoom_in(), icicle.zoom_out()
    assert isinstance(tree.draw(profile, None, width, height), list)


def test_markup_is_shown_as_it_is():
    (row, *_) = LinesView().draw(HOSTILE, None, 196, 10, on_gpu=True)[4:]
    assert "[bold]x[red].py:3" in text_of(row)
    assert "\x1b" not in text_of(row)


# -- what stands around them


def test_tabs():
    row = text_of(tabs_line("tree", "main · pid 4242", 1234, 100))
    assert row.startswith(" h Hot lines   c Call tree   i Icicle ")
    assert row.endswith("t main · pid 4242  1 234 samples")
    assert cells(tabs_line("lines", "x" * 200, 1, 60)) <= 62


def test_phases_with_their_shares(trainer):
    spans = phases_line(trainer, "forward", 116)
    assert "data 62 %" in text_of(spans) and "other 4 %" in text_of(spans)
    assert next(span for span in spans if "forward" in span.text).role == "forward badge"
    assert cells(phases_line(trainer, None, 76)) <= 76
    assert "optimizer 4%" in text_of(phases_line(trainer, None, 76))


def test_user_ranges_have_a_line_of_their_own_and_are_filters():
    ranges = [f"step/{'part' * 3} {i}" for i in range(8)]
    samples = [Sample([0], 10, "other", ranges=("step", path)) for path in ranges]
    profile = of(*samples, Sample([0], 20, "eval"))
    listed = filters(profile)
    assert listed[:7] == (None, "data", "forward", "backward", "optimizer", "other", "eval")
    assert listed[7:] == (f"{RANGE}step", *(RANGE + path for path in ranges))
    row = text_of(ranges_line(profile, None, 116))
    assert row.startswith(" ranges ") and "step 80 %" in row
    for path in ranges:
        spans = ranges_line(profile, RANGE + path, 76)
        assert cells(spans) <= 76
        assert next(span.text for span in spans if span.role == "key badge") == f" {path} 10% "
    assert "range" not in text_of(phases_line(profile, None, 200))
    assert "eval 20 %" in text_of(phases_line(profile, None, 200))
    assert profile.count(f"{RANGE}step") == 80
    assert profile.lines(f"{RANGE}{ranges[0]}").samples == 10
    assert "the range gone" in text_of(empty_lines(profile, f"{RANGE}gone")[1])


def test_who():
    scope = Scope(4301, 4301, "worker 1")
    assert who_text(scope, 2) == "worker 1 · pid 4301"
    assert who_text(scope._replace(tid=9), 2) == "worker 1 · tid 9"
    assert who_text(scope._replace(extent="role"), 2) == "all 2 worker threads"
    assert who_text(scope._replace(extent="process"), 2) == "process 4301"
    assert who_text(scope._replace(extent="run"), 2) == "the whole run"


def test_why_there_is_nothing():
    assert "no stack samples" in texts(empty_lines(of(), None))[1]
    assert "no sample in eval" in texts(empty_lines(of(Sample([0], 1, "data")), "eval"))[1]
    assert "these threads have none" in texts(empty_lines(of(Sample([0], 1, "none")), "data"))[1]


def test_an_empty_tree_has_no_rows():
    assert visible_nodes(CallTree(), set()) == []


# -- the GIL among the threads


def test_who_holds_the_gil_is_a_column_once_it_was_looked_at():
    (row, *_) = profiles.session(2).threads()
    assert "gil" not in text_of(header_line(layout([row], 120), "role"))
    rows = [replace(row, gil_ratio=0.42), replace(row, tid=9, gil_ratio=None)]
    columns = layout(rows, 120)
    assert "gil" in text_of(header_line(columns, "role"))
    assert " 42 % " in text_of(thread_line(rows[0], columns))
    assert cells(thread_line(rows[1], columns)) == cells(thread_line(rows[0], columns)) == 120
    assert layout(rows, 80).gil == 0
    assert "held 42 % of the time" in text_of(thread_lines(rows[0], [], 80)[7])
