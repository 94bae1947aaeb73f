"""Trie, call tree and hot lines: merged by function, lines kept, bounded, deep stacks without recursion."""

import doctest
import gc
import sys
import weakref

from tests.session.records import frames
from tests.session.stacks import profiles
from tests.session.stacks.profiles import MAIN, PLACES
from tuimon.records import Frame
from tuimon.session.stacks import trie
from tuimon.session.stacks.call_tree import CallTree, program_part
from tuimon.session.stacks.samples import Sample, Samples, line_table
from tuimon.session.stacks.trie import Trie, user_place


def table(*places):
    made = Trie()
    made.add_frames(0, frames(*places).frames)
    return made


def test_a_program_that_is_an_installed_package_is_read_like_a_users_file():
    for function in ("generate", "evaluate", "validate", "fit"):
        file, package = (
            table((file, 5, function, "y = model(x)", True)).node([0]).frame
            for file in ("/home/me/train.py", "/v/lib/python3.11/site-packages/nice/train.py")
        )
        assert (package.roles, package.block) == (file.roles, file.block)


def test_a_comment_says_nothing_of_what_a_line_does():
    frame = table(("/home/me/train.py", 5, "main", "y = x.detach()  # as x @ w, or env.step(a)", True)).node([0]).frame
    assert frame.text == "y = x.detach()"


SMALL = table(
    ("a.py", 1, "main", "main()", True),  # 0
    ("a.py", 5, "loop", "x = load()", True),
    ("a.py", 6, "loop", "fit(x)", True),
    ("a.py", 20, "load", "open(p)", True),
    ("b.py", 3, "fit", "a @ b", True),
)  # fmt: skip


def small():
    tree = CallTree()
    tree.add_stack(SMALL.node([0, 1, 3]).frames, 30, "data")
    tree.add_stack(SMALL.node([0, 2, 4]).frames, 60, "forward")
    tree.add_stack(SMALL.node([0, 1]).frames, 10, "data")
    return tree


def shape(tree):
    return [(node.depth, node.function, node.total, node.own) for node in tree.root.walk()]


def test_merged_by_function_the_heaviest_first():
    assert shape(small()) == [
        (0, "all", 100, 0),
        (1, "main", 100, 0),
        (2, "loop", 100, 10),
        (3, "fit", 60, 60),
        (3, "load", 30, 30),
    ]


def test_a_node_knows_the_line_it_was_called_at():
    fit = next(node for node in small().root.walk() if node.function == "fit")
    assert (fit.call().line, fit.call().source) == (6, "fit(x)")
    assert next(iter(small().root.children.values())).call() is None


def test_phase_of_a_node():
    phases = {node.function: node.phase() for node in small().root.walk()}
    assert phases == {"all": None, "main": None, "loop": None, "fit": "forward", "load": "data"}


def test_hottest_path_ends_where_less_than_a_tenth_is_left():
    tree = small()
    assert [node.function for node in tree.hottest_path()] == ["main", "loop", "fit"]
    assert CallTree().hottest_path() == []
    thin = CallTree()
    for number in range(1, 12):
        thin.add_stack(table(*(("a.py", n, f"f{n}") for n in range(12))).node([0, number]).frames, 1)
    assert [node.function for node in thin.hottest_path()] == ["f0"]


def test_equal_children_keep_their_order():
    one, other = CallTree(), CallTree()
    one.add_stack(SMALL.node([1]).frames, 5), one.add_stack(SMALL.node([4]).frames, 5)
    other.add_stack(SMALL.node([4]).frames, 5), other.add_stack(SMALL.node([1]).frames, 5)
    assert [n.function for n in one.root.ordered()] == [n.function for n in other.root.ordered()]


def test_a_full_tree_counts_samples_at_their_caller():
    tree = CallTree(limit=3)
    tree.add_stack(SMALL.node([0, 1, 3]).frames, 7)
    assert len(tree) == 3
    assert shape(tree)[-1] == (2, "loop", 7, 7)
    assert sum(node.own for node in tree.root.walk()) == tree.samples == 7


def test_recursion_of_thousands_of_frames():
    deep = table(("r.py", 1, "main"), ("r.py", 9, "again"))
    tree = CallTree()
    tree.add_stack(deep.node([0] + [1] * 9_999).frames, 3)
    depth = max(node.depth for node in tree.root.walk())
    assert depth == 10_000 > sys.getrecursionlimit()
    assert len(tree.hottest_path()) == 10_000
    assert len(tree.hottest_path()[-1].path()) == 10_000


def test_only_one_phase():
    counted = ([0, 1, 3], 30, "data"), ([0, 2, 4], 60, "forward")
    samples = Samples(tuple(Sample(SMALL.node(ids), n, phase) for ids, n, phase in counted))
    assert samples.tree("data").samples == 30
    assert samples.tree("eval").samples == 0
    assert samples.tree().samples == 90


def test_a_forked_worker_begins_at_its_loop_and_our_hooks_are_left_out():
    known = table(
        ("t.py", 1, "main", "", True),
        ("/x/torch/utils/data/_utils/worker.py", 9, "_worker_loop"),
        ("/x/tuimon/agent/hooks.py", 63, "tuimon_fetch"),
        ("d.py", 2, "item", "", True),
    )
    assert program_part(known.node([0, 1, 3]).frames) == known.node([1, 3]).frames
    assert program_part(known.node([0, 2, 3]).frames) == known.node([0, 3]).frames
    assert program_part(known.node([0, 2]).frames) == known.node([0]).frames  # sampled in the hook itself
    assert program_part(known.node([2]).frames) == known.node([2]).frames
    assert program_part(known.node([]).frames) == known.node([]).frames


def test_unknown_frames_are_counted_as_unknown():
    tree = CallTree()
    tree.add_stack(Trie().node([77]).frames, 2)
    assert shape(tree)[1] == (1, "?", 2, 2)


# -- the trie: its worked example, which nodes stay, the place of a stack in the user's code


def test_the_worked_example_runs() -> None:
    assert doctest.testmod(trie) == (0, 11)


def test_nodes_are_shared_and_go_with_what_counts_them() -> None:
    known = table(("a.py", 1, "main"), ("a.py", 2, "load"), ("a.py", 3, "fit"))
    load, fit = known.node([0, 1]), known.node([0, 2])
    assert load.parent is fit.parent is known.node([0])
    gone = weakref.ref(load)
    del load
    gc.collect()
    assert gone() is None
    assert known.node([0, 2]) is fit
    assert known.node([0, 1]).frame.function == "load"


def test_a_comprehension_belongs_to_its_function() -> None:
    function, comprehension = Frame("a.py", 3, "rows", "", True), Frame("a.py", 4, "<listcomp>", "", True)
    place = user_place([function, comprehension])
    assert place is not None
    assert (place.function, place.line) == ("rows", 4)
    alone = user_place([comprehension])
    assert alone is not None
    assert alone.function == "<listcomp>"


def test_lines_near_another_are_those_that_frames_brought():
    table = Trie()
    table.add_frames(0, [Frame("a.py", 4, "f", "x = 1"), Frame("a.py", 5, "f", "y = 2"), Frame("a.py", 9, "f", "far")])
    table.add_frames(3, [Frame("b.py", 5, "g", "other"), Frame("a.py", 6, "f", "")])
    assert table.lines_near("a.py", 5, 1) == [(4, "x = 1"), (5, "y = 2")]
    assert table.lines_near("c.py", 5, 1) == []


def test_a_stack_of_any_depth_is_a_node() -> None:
    known = table(("r.py", 1, "main", "", True), ("r.py", 9, "again", "", True))
    deep = known.node([0] + [1] * 20_000)
    assert len(deep.frames) == len(deep.ids) == 20_001
    gone = weakref.ref(deep)
    del deep
    gc.collect()
    assert gone() is None


# -- hot lines: own and total, recursion, libraries, phases


def of_stacks(known, *counted):
    return line_table([Sample(known.node(ids), count, "none") for ids, count in counted])


def of_session(**more):
    session = profiles.session(2)
    return session.over("recent").of(MAIN).samples.table(**more)


def rows(found):
    return {
        (row.place.file.rpartition("/")[2], row.place.line): (row.own, row.total, row.activity) for row in found.lines
    }


def test_most_own_samples_first_and_own_adds_up():
    found = of_session()
    assert [row.place.line for row in found.lines][:3] == [44, 21, 55]
    assert sum(row.own for row in found.lines) == found.samples == 200
    assert found.activities == (("data", 124), ("torch", 56), ("sync", 16), ("sleep", 4))


def test_every_line_by_itself():
    found = rows(of_session(libraries=True))
    assert found["selectors.py", 415] == (124, 124, "data")
    assert found["train.py", 44] == (0, 124, "data")
    assert found["conv.py", 543] == (28, 28, "torch")
    assert ("module.py", 1773) not in found  # what torch puts between a call and its forward


def test_recursion_counts_once():
    known = table(("r.py", 1, "main", "", True), ("r.py", 9, "again", "", True))
    found = rows(of_stacks(known, ([0] + [1] * 500, 3)))
    assert found == {("r.py", 9): (3, 3, "python"), ("r.py", 1): (0, 3, "python")}


def test_most_of_what_is_done_at_a_line_names_it():
    known = table(PLACES[1], PLACES[8], ("/e/torch/nn/modules/conv.py", 1, "f"))
    (row,) = of_stacks(known, ([0, 1], 3), ([0, 2], 7)).lines
    assert row.activity == "torch"


def test_bounded():
    known = table(*(("f.py", n, "f", "", True) for n in range(1, 2000)))
    found = of_stacks(known, *(([n], 1) for n in range(1999)))
    assert len(found.lines) == 500
    assert found.samples == 1999


def test_a_line_is_one_row_whatever_has_a_frame_in_it():
    text = "batch = torch.stack([load(n) for n in range(9)])"
    known = table(*(("/p/a.py", 7, name, text, True) for name in ("main", "<listcomp>", "<genexpr>")))
    found = of_stacks(known, ([0], 1), ([0, 1], 3), ([1, 2], 1))
    (row,) = found.lines
    assert (row.place.function, row.own, row.total, row.activity) == ("main", 5, 5, "python")
