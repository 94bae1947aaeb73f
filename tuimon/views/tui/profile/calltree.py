"""The call tree as rows to fold and unfold."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tuimon.session.stacks.call_tree import Call, CallTree
from tuimon.session.stacks.samples import LineShare, Samples
from tuimon.views.format import percent, place, plain
from tuimon.views.tui.drawing.charts import bar
from tuimon.views.tui.drawing.lines import Line, cells, clipped_left, column, filled, line, with_cursor
from tuimon.views.tui.drawing.moving import moved, scrolled

Trail = tuple[int, ...]  # ids from the root's child to a node


def node_of_line(tree: CallTree, row: LineShare) -> Call | None:
    """The node in which most samples of a line lie."""
    at = row.place
    nodes = [n for n in tree.root.walk() if (n.file, n.function) == (at.file, at.function) and n.lines[at.line]]
    return max(nodes, key=lambda node: node.lines[at.line], default=None)


def visible_nodes(tree: CallTree, opened: AbstractSet[int]) -> list[Call]:
    """The rows: the root's children and, below each opened node, its own; the heaviest first."""
    rows: list[Call] = []
    stack = tree.root.ordered()[::-1]
    while stack:
        node = stack.pop()
        rows.append(node)
        if node.id in opened:
            stack += reversed(node.ordered())
    return rows


def head_line(width: int) -> Line:
    """Names of the columns."""
    return line(
        (column("total", 6, ">"), "key"),
        (" " * (bar_width(width) + 1), ""),
        (column("self", 6, ">"), "dim"),
        ("  ", ""),
        ("function", "dim"),
    )


def bar_width(width: int) -> int:
    """Cells of the share's bar."""
    return 12 if width >= 110 else 8 if width >= 90 else 5


def node_line(tree: CallTree, node: Call, width: int, *, opened: bool, cursor: bool = False) -> Line:
    """One function: its shares, its place in the tree, its hottest line."""
    share = tree.share(node.total)
    here = node.place()
    gauge = bar_width(width)
    left = line(
        (column(percent(share), 6, ">"), "strong" if share >= 0.1 else "text"),
        (" " + column(bar(share, gauge - 1), gauge), node.phase() or "dim"),
        (column(percent(tree.share(node.own)) if node.own else "", 6, ">"), "dim"),
        ("  " + indent(node.depth - 1, width), "faint"),
        (("▾ " if opened else "▸ ") if node.children else "  ", "dim"),
        (f"{plain(node.function)}", "strong" if node.user else "text"),
        ("  ", ""),
        (place(node.file, here.line), "key" if node.user else "dim"),
        ("  ", ""),
        *_code(node),
    )
    return with_cursor(left) if cursor else left


def _code(node: Call) -> Line:
    """The function's hottest line; of a library's function the user's line that called it."""
    source = plain(node.place().source).strip()
    if source:
        return line((source, "text"))
    call = node.call()
    source = plain(call.source).strip() if call is not None else ""
    return line(("← ", "faint"), (source, "dim")) if source else ()


def indent(depth: int, width: int) -> str:
    """Two cells a level; deeper rows stop at a third of the screen and show their depth."""
    step = 2 if width >= 90 else 1
    if depth * step <= width // 3:
        return " " * (depth * step)
    mark = f"+{depth} "
    return " " * (width // 3 - len(mark)) + mark


def detail_line(tree: CallTree, node: Call, width: int) -> Line:
    """The node under the cursor, whole: name, shares, place."""
    shares = f"{percent(tree.share(node.total), 1)} total, {percent(tree.share(node.own), 1)} self"
    here = node.place()
    spot = f"{plain(node.file)}:{here.line}" if node.file else "all samples"
    phase, call = node.phase(), node.call()
    in_phase = line("  ", (phase, phase)) if phase else ()
    caller = line(("  ← ", "faint"), (place(call.file, call.line), "dim")) if call else ()
    name = line((plain(node.function), "strong"), "  ", (shares, "text"))
    room = width - cells(name) - cells(in_phase) - 2
    caller = caller if cells(caller) + len(spot) <= room else ()
    return (*name, *in_phase, *line("  ", (clipped_left(spot, room), "key")), *caller)


class TreeView:
    """The rows with a cursor; selection and folding are by node ids, as the tree is rebuilt at every refresh."""

    def __init__(self) -> None:
        self.opened: set[int] = set()
        self._selected: Trail = ()
        self._begun = False  # some path has been opened
        self._tree = CallTree()
        self._rows: list[Call] = []
        self._top = 0

    def draw(self, samples: Samples, phase: str | None, width: int, height: int) -> list[Line]:
        """Exactly ``height`` lines."""
        tree = self._tree = samples.tree(phase)
        path = tree.hottest_path()
        if path and not self._begun:  # opened in the first tree with samples; later trees change nothing
            self.reveal(path[0])
            self.opened |= {node.id for node in path}
        self._rows = visible_nodes(tree, self.opened)
        at = self._at()
        room = max(height - 2, 1)
        self._top = scrolled(self._top, at, len(self._rows), room)
        lines = [head_line(width)]
        for number, node in enumerate(self._rows[self._top : self._top + room], self._top):
            opened = node.id in self.opened
            lines.append(node_line(tree, node, width, opened=opened, cursor=number == at))
        return [*filled(lines, height - 1), detail_line(tree, self._rows[at], width) if self._rows else ()]

    def selected(self, tree: CallTree) -> Call:
        """The node under the cursor; if it has gone, the innermost of its callers that is left."""
        found = tree.root
        for number in self._selected:
            node = tree.node(number)
            if node is None:
                break
            found = node
        return found

    def reveal(self, node: Call) -> None:
        """Unfold the way to a node and put the cursor there."""
        self._begun = True
        self.opened |= {each.id for each in node.path()[:-1]}
        self._select(node)

    def _select(self, node: Call) -> None:
        self._selected = tuple(each.id for each in node.path())

    def move(self, rows_down: int) -> None:
        """Move the cursor over the rows that are unfolded."""
        if self._rows:
            self._select(self._rows[moved(self._at(), rows_down, len(self._rows))])

    def sideways(self, step: int) -> None:
        """Unfold, or fold."""
        if self._rows:
            node = self._rows[self._at()]
            if step > 0:
                self._unfold(node)
            elif node.id in self.opened and node.children:
                self.opened.discard(node.id)
            elif node.parent is not None and node.parent.parent is not None:  # on a closed one to its caller
                self._select(node.parent)

    def _unfold(self, node: Call) -> None:
        """Open the node and the only children below it; on an open node move to its first child."""
        if node.id in self.opened and node.children:
            self._select(node.ordered()[0])
            return
        while node.children:
            self.opened.add(node.id)
            if len(node.children) > 1:
                break
            (node,) = node.children.values()

    def enter(self) -> None:
        """Open or close the node."""
        node = self._rows[self._at()] if self._rows else None
        if node is not None and node.id in self.opened:
            self.opened.discard(node.id)
        else:
            self.sideways(1)

    def click(self, x: int, y: int) -> bool:
        """Put the cursor on the row ``y``; whether it stood there already."""
        index = self._top + y - 1
        if y < 1 or not 0 <= index < len(self._rows):
            return False
        same = index == self._at()
        self._select(self._rows[index])
        return same

    def _at(self) -> int:
        """The row of the selected node; where it is folded away, of its innermost visible caller."""
        places = {node.id: index for index, node in enumerate(self._rows)}
        node: Call | None = self.selected(self._tree)
        while node is not None and node.id not in places:
            node = node.parent
        return places[node.id] if node is not None else 0
