"""The cursor in a call tree, shared by tree and icicle and kept from refresh to refresh."""

from __future__ import annotations

from msgspec import Struct, field

from tuimon.session.loop_tree.hot_lines import LineShare
from tuimon.session.loop_tree.tree import CallTree, Node

Trail = tuple[int, ...]  # ids from the root's child to a node


class TreeCursor(Struct):
    """Selection, folding and zoom by node ids; the tree itself is rebuilt at every refresh."""

    opened: set[int] = field(default_factory=set)
    _selected: Trail = ()
    _zoomed: Trail = ()
    _begun: bool = False

    def open_hottest_path(self, tree: CallTree) -> None:
        """Open the hottest path of the first tree with samples; later trees change nothing."""
        path = tree.hottest_path()
        if self._begun or not path:
            return
        self._begun = True
        self.opened |= {node.id for node in path}
        self.select(path[0])

    def selected(self, tree: CallTree) -> Node:
        """The node under the cursor; if it has gone, the innermost of its callers that is left."""
        return _deepest(tree, self._selected)

    def select(self, node: Node) -> None:
        """Put the cursor there."""
        self._selected = tuple(each.id for each in node.path())

    def zoomed(self, tree: CallTree) -> Node:
        """The node that takes the whole width of the icicle."""
        return _deepest(tree, self._zoomed)

    def zoom(self, node: Node) -> None:
        """Give a node the whole width."""
        self._zoomed = tuple(each.id for each in node.path())

    def reveal(self, node: Node) -> None:
        """Unfold the way to a node and put the cursor there."""
        self._begun = True
        self.opened |= {each.id for each in node.path()[:-1]}
        self.select(node)


def _deepest(tree: CallTree, trail: Trail) -> Node:
    found = tree.root
    for number in trail:
        node = tree.node(number)
        if node is None:
            break
        found = node
    return found


def node_of_line(tree: CallTree, row: LineShare) -> Node | None:
    """The node in which most samples of a line lie."""
    best, most = None, 0
    for node in tree.root.walk():
        if (node.file, node.function) == (row.place.file, row.place.function):
            line = node.lines.get(row.place.line)
            if line is not None and line.total > most:
                best, most = node, line.total
    return best
