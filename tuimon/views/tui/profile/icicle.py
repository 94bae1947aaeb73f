"""The call tree as an icicle: rows are depth, width is share of the samples."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len

from tuimon.session.loop_tree.tree import CallTree, Node
from tuimon.session.samples.sample_profile import SampleProfile
from tuimon.views.format import percent, plain
from tuimon.views.tui.drawing.lines import Line, Span, column, filled
from tuimon.views.tui.drawing.moving import moved, scrolled
from tuimon.views.tui.profile.calltree import TreeCursor, detail_line

Rows = list[list["Block"]]


class Block(NamedTuple):
    """A node and the cells that it takes in its row."""

    node: Node
    x: int
    width: int


def blocks(tree: CallTree, zoomed: Node, width: int, rows: int) -> Rows:
    """The first ``rows`` rows, the root's first; ``zoomed`` and all above it take the whole width.

    Each child takes its share of its parent's cells, the heaviest at the left; what is narrower than a cell is left
    out, and so is what a function spent itself: the empty part to the right of its children.
    """
    above = [tree.root, *zoomed.path()]
    found: Rows = [[Block(node, 0, width)] for node in above[:rows]]
    while len(found) < rows and found[-1]:
        row: list[Block] = []
        for parent in found[-1]:
            row += _children(parent)
        found.append(row)
    return [row for row in found if row]


def _children(parent: Block) -> list[Block]:
    if parent.width < 1 or not parent.node.total:
        return []
    found, before = [], 0
    for child in parent.node.ordered():
        start = round(before / parent.node.total * parent.width)
        before += child.total
        end = round(before / parent.node.total * parent.width)
        if end > start:
            found.append(Block(child, parent.x + start, end - start))
    return found


def icicle_lines(tree: CallTree, rows: Rows, selected: Node, zoomed: Node) -> list[Line]:
    """The rows drawn: a block has its phase's colour, the selected one is bright."""
    above = {node.id for node in zoomed.path()[:-1]} | ({0} if zoomed.id else set())
    return [_row(tree, row, selected, above) for row in rows]


def _row(tree: CallTree, row: list[Block], selected: Node, above: set[int]) -> Line:
    spans: list[Span] = []
    x = 0
    for block in row:
        if block.x > x:
            spans.append(Span(" " * (block.x - x)))
        spans += _block(tree, block, chosen=block.node is selected, passed=block.node.id in above)
        x = block.x + block.width
    return tuple(spans)


def _block(tree: CallTree, block: Block, *, chosen: bool, passed: bool) -> list[Span]:
    """A hairline at the left edge keeps neighbours apart."""
    node = block.node
    colour = node.phase() or "other"
    ground = "badge" if chosen else "shade" if node.depth % 2 else "tint"
    style = f"{colour} {ground}{' bold' if node.user else ''}{' italic' if passed else ''}"
    share = f" {percent(tree.share(node.total))}"
    name = ("▸" if chosen else "") + (plain(node.function) or "?")
    room = block.width - 1
    label = name if room < cell_len(name) + len(share) + 1 else name + share
    text = column(label, room) if room >= 3 else " " * room
    return [Span("▏", f"{style} edge"), Span(text, style)]


def beside(rows: Rows, selected: Node, step: int) -> Node:
    """The block to the left (-1) or right (1) in the row of ``selected``; itself where there is none."""
    row = next((row for row in rows if row[0].node.depth == selected.depth), [])
    at = next((i for i, block in enumerate(row) if block.node is selected), None)
    if at is None:
        return row[0].node if row else selected
    return row[moved(at, step, len(row))].node


def under(rows: Rows, x: int, y: int) -> Node | None:
    """The node whose block covers a cell; ``y`` counts the rows from the root."""
    if not 0 <= y < len(rows):
        return None
    return next((block.node for block in rows[y] if block.x <= x < block.x + block.width), None)


class IcicleView:
    """The icicle with the cursor of the tree."""

    def __init__(self, cursor: TreeCursor) -> None:
        self.cursor = cursor
        self._tree = CallTree()
        self._rows: Rows = []
        self._top = 0

    def draw(self, profile: SampleProfile, phase: str | None, width: int, height: int) -> list[Line]:
        """Exactly ``height`` lines."""
        tree = self._tree = profile.tree(phase)
        self.cursor.open_hottest_path(tree)
        room = max(height - 2, 1)
        selected, zoomed = self.cursor.selected(tree), self.cursor.zoomed(tree)
        self._rows = blocks(tree, zoomed, width, max(self._top, selected.depth) + room + 1)
        self._top = scrolled(self._top, selected.depth, len(self._rows), room)
        lines = icicle_lines(tree, self._rows[self._top : self._top + room], selected, zoomed)
        return [*filled(lines, height - 1), detail_line(tree, selected, width)]

    def move(self, rows_down: int) -> None:
        """Down to the heaviest child, up to the caller."""
        node = self.cursor.selected(self._tree)
        for _ in range(min(abs(rows_down), len(self._rows))):
            after = node.parent if rows_down < 0 else next(iter(node.ordered()), None)
            if after is None:
                break
            node = after
        self.cursor.select(node)

    def sideways(self, step: int) -> None:
        """To the neighbour in the row."""
        self.cursor.select(beside(self._rows, self.cursor.selected(self._tree), step))

    def enter(self) -> None:
        """Give the selected node the whole width."""
        self.cursor.zoom(self.cursor.selected(self._tree))

    def zoom_out(self) -> bool:
        """Give its caller the whole width, skipping callers of the same width; False when nothing is zoomed."""
        zoomed = self.cursor.zoomed(self._tree)
        if zoomed.parent is None:
            return False
        caller: Node = zoomed.parent
        while caller.parent is not None and caller.total == zoomed.total:
            caller = caller.parent
        self.cursor.zoom(self._tree.root if caller.total == self._tree.samples else caller)
        return True

    def click(self, x: int, y: int) -> bool:
        """Select the block under the pointer; whether it was selected already."""
        node = under(self._rows, x, self._top + y)
        if node is None:
            return False
        same = node is self.cursor.selected(self._tree)
        self.cursor.select(node)
        return same
