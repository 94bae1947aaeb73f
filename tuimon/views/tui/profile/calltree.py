"""The call tree as rows to fold and unfold."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tuimon.session.stacks.call_tree import Call, CallTree
from tuimon.session.stacks.samples import LineShare, Samples
from tuimon.views.format import percent, place, plain
from tuimon.views.tui.drawing.charts import bar
from tuimon.views.tui.drawing.lines import Column, Line, cells, clipped_left, filled, head_line, line, row_line
from tuimon.views.tui.drawing.moving import Rows


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


def _columns(tree: CallTree, opened: AbstractSet[int], width: int) -> list[Column[Call]]:
    """A function's shares, its place in the tree, its hottest line."""
    gauge = 12 if width >= 110 else 8 if width >= 90 else 5

    def function(node: Call) -> Line:
        return line(
            (indent(node.depth - 1, width), "faint"),
            (("▾ " if node.id in opened else "▸ ") if node.children else "  ", "dim"),
            (plain(node.function), "strong" if node.user else "text"),
            "  ",
            (place(node.file, node.place().line), "key" if node.user else "dim"),
            "  ",
            *_code(node),
        )

    return [
        Column("total", 6, lambda n: (percent(tree.share(n.total)), "strong" if tree.share(n.total) >= 0.1 else "text"),
               ">", 1, role="key"),
        Column("", gauge, lambda node: (bar(tree.share(node.total), gauge - 1), node.phase() or "dim")),
        Column("self", 6, lambda node: (percent(tree.share(node.own)) if node.own else "", "dim"), ">", 2),
        Column("function", max(width - gauge - 15, 0), function),
    ]  # fmt: skip


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

    HEAD_LINES = 1  # above the rows

    def __init__(self) -> None:
        self.opened: set[int] = set()
        self.rows: Rows[Call] = Rows(lambda node: node.id)
        self._trail: list[int] = []  # ids from the root's child to the cursor's node
        self._begun = False  # some path has been opened

    def draw(self, samples: Samples, phase: str | None, width: int, height: int) -> list[Line]:
        """Exactly ``height`` lines."""
        tree = samples.tree(phase)
        path = tree.hottest_path()
        if path and not self._begun:  # opened in the first tree with samples; later trees change nothing
            self.reveal(path[0])
            self.opened |= {node.id for node in path}
        self.rows.rows = visible_nodes(tree, self.opened)
        nodes = {node.id: node for node in self.rows.rows}
        if self.rows.key not in nodes:  # it has gone: the innermost of its callers that is left
            self.rows.key = next((number for number in reversed(self._trail) if number in nodes), None)
        chosen = self.rows.selected
        self._trail = [node.id for node in chosen.path()] if chosen is not None else []
        columns = _columns(tree, self.opened, width)
        shown = self.rows.in_view(max(height - self.HEAD_LINES - 1, 1))
        lines = [head_line(columns), *(row_line(columns, node, cursor=cursor) for node, cursor in shown)]
        return [*filled(lines, height - 1), detail_line(tree, chosen, width) if chosen is not None else ()]

    def reveal(self, node: Call) -> None:
        """Unfold the way to a node and put the cursor there."""
        self._begun = True
        self.opened |= {each.id for each in node.path()[:-1]}
        self.rows.select(node)

    def sideways(self, step: int) -> None:
        """Unfold, or fold."""
        node = self.rows.selected
        if node is None:
            return
        if step > 0:
            self._unfold(node)
        elif node.id in self.opened and node.children:
            self.opened.discard(node.id)
        elif node.parent is not None and node.parent.parent is not None:  # on a closed one to its caller
            self.rows.select(node.parent)

    def _unfold(self, node: Call) -> None:
        """Open the node and the only children below it; on an open node move to its first child."""
        if node.id in self.opened and node.children:
            self.rows.select(node.ordered()[0])
            return
        while node.children:
            self.opened.add(node.id)
            if len(node.children) > 1:
                break
            (node,) = node.children.values()

    def enter(self) -> None:
        """Open or close the node."""
        node = self.rows.selected
        if node is not None and node.id in self.opened:
            self.opened.discard(node.id)
        else:
            self.sideways(1)
