"""The call tree: merged by function, lines kept, bounded, deep stacks without recursion."""

import sys

from tests.session.records import frames
from tests.session.stacks import profiles
from tests.session.stacks.profiles import MAIN
from tuimon.session.stacks.call_tree import CallTree, program_part
from tuimon.session.stacks.samples import Sample, Samples
from tuimon.session.stacks.trie import Trie


def table(*places):
    made = Trie()
    made.add_frames(0, frames(*places).frames)
    return made


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


def test_lines_are_the_detail_of_a_node():
    loop = next(node for node in small().root.walk() if node.function == "loop")
    assert {number: (count, loop.sources[number]) for number, count in loop.lines.items()} == {
        5: (40, "x = load()"),
        6: (60, "fit(x)"),
    }
    assert loop.place().line == 6
    assert loop.place().source == "fit(x)"


def test_a_node_knows_the_line_it_was_called_at():
    fit = next(node for node in small().root.walk() if node.function == "fit")
    assert (fit.call().line, fit.call().source) == (6, "fit(x)")
    assert next(iter(small().root.children.values())).call() is None


def test_phase_of_a_node():
    phases = {node.function: node.phase() for node in small().root.walk()}
    assert phases == {"all": None, "main": None, "loop": None, "fit": "forward", "load": "data"}


def test_ids_are_the_same_in_the_next_tree():
    first, second = small(), CallTree()
    second.add_stack(SMALL.node([0, 2, 4]).frames, 1)
    known = {node.id: node.function for node in first.root.walk()}
    assert [known[node.id] for node in second.root.walk()] == ["all", "main", "loop", "fit"]


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


def test_of_a_session():
    session = profiles.session(3)
    tree = session.over("recent").samples(MAIN).tree()
    assert tree.samples == 300
    assert tree.share(next(n for n in tree.root.walk() if n.function == "select").own) == 0.62
    frame = session.trie.node([1]).frame
    assert (frame.file, frame.line, frame.function, frame.source, frame.user) == profiles.PLACES[1]
