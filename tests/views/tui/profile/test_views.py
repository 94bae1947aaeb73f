"""The call tree and hot lines, at every size."""

import pytest

from tests.views.tui.profile.samples import DEEP, HOSTILE, SIZES, Counted, of
from tests.views.tui.texts import texts
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.profile.calltree import TreeView, indent, node_of_line, visible_nodes
from tuimon.views.tui.profile.hotlines import LinesView


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
    view.move(2)
    view.sideways(-1)
    assert functions()[2:4] == ["__next__", "forward"]
    view.move(1)
    view.sideways(1)
    assert functions()[3:6] == ["forward", "_conv_forward", "backward"]
    view.sideways(1)
    functions()
    assert view.selected(trainer.tree(None)).function == "_conv_forward"
    view.sideways(-1)
    view.sideways(-1)
    assert functions()[3:5] == ["forward", "backward"]
    assert view.selected(trainer.tree(None)).function == "forward"
    view.enter()
    assert functions()[3:5] == ["forward", "_conv_forward"]


def test_one_key_opens_a_call_as_far_as_its_fork():
    profile = of(Counted([0, 10, 12, 8], 1, "data"), Counted([0, 10, 16, 8], 1, "data"), Counted([21], 90, "other"))
    view = TreeView()
    view.draw(profile, None, 116, 20)
    view.move(1)
    view.sideways(1)
    view.draw(profile, None, 116, 20)
    opened = [node.depth for node in visible_nodes(profile.tree(None), view.opened)]
    assert opened == [1, 1, 2, 3, 3]


def test_a_node_that_has_gone_leaves_the_cursor_with_its_caller(trainer):
    view = TreeView()
    view.draw(trainer, None, 116, 20)
    view.move(3)
    fewer = of(Counted([0, 1], 5, "data"))
    view.draw(fewer, None, 116, 20)
    assert view.selected(fewer.tree(None)).function == "main"


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
    assert view.selected(tree) is node


@pytest.mark.parametrize("profile", [HOSTILE, DEEP, of()], ids=["hostile", "deep", "empty"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_lines_fit_and_are_printable(profile, width, height):
    tree = TreeView()
    for lines in (
        LinesView().draw(profile, None, width, height, on_gpu=True),
        tree.draw(profile, None, width, height),
    ):
        assert len(lines) == height
        assert all(text_of(row).isprintable() for row in lines)
    tree.move(3), tree.move(-1), tree.sideways(1), tree.sideways(-1), tree.enter()
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
    view.move(2)
    assert view.selected().place.line == 55
    changed = of(Counted([0, 3, 13, 14], 90, "backward"), Counted([0, 1, 6, 7, 8], 10, "data"))
    view.draw(changed, None, 116, 14, on_gpu=True)
    assert view.selected().place.line == 55
    view.draw(of(Counted([0, 1], 1, "data")), None, 116, 14, on_gpu=True)
    assert view.selected().place.line == 44


def test_scrolled_to_the_cursor():
    many = of(
        *(Counted([n], 300 - n, "none") for n in range(200)),
        places=[("m.py", n + 1, "f", f"line {n}", True) for n in range(200)],
    )
    view = LinesView()
    view.draw(many, None, 80, 14, on_gpu=True)
    view.move(100_000)
    rows = texts(view.draw(many, None, 80, 14, on_gpu=True))
    assert "line 199" in rows[-2]
    assert len(rows) == 14
