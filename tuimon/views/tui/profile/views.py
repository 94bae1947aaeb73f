"""The views of a profile: hot lines as a table, and the call tree as rows to fold and unfold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from tuimon.records import Place
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.call_tree import Call, CallTree
from tuimon.session.stacks.samples import LineShare, LineTable, Samples
from tuimon.text import full_place, function_text
from tuimon.views.format import code, percent, plain
from tuimon.views.tui.drawing.charts import bar
from tuimon.views.tui.drawing.lines import (
    MIN_TEXT,
    Column,
    Line,
    Span,
    chained,
    clipped_left,
    head_line,
    line,
    line_width,
    padded,
    place_column,
    place_span,
    places_width,
    row_line,
    shown_columns,
)
from tuimon.views.tui.drawing.moving import Rows
from tuimon.views.tui.sheets.sheet import CodeLines, code_lines

#: Ways to sort, cycled by ``s``.
SORTS = ("self", "total")
#: activity -> (word, role).
_ACTIVITIES: dict[Activity, tuple[str, str]] = {
    "data": ("waits for data", "data"),
    "lock": ("waits for lock", "warning"),
    "thread": ("waits for thread", "warning"),
    "message": ("awaits message", "warning"),
    "child": ("awaits program", "warning"),
    "connection": ("I/O", "warning"),
    "network": ("network", "warning"),
    "prompt": ("at a prompt", "dim"),
    "ranks": ("waits for ranks", "warning"),
    "sync": ("GPU sync", "critical"),
    "transfer": ("transfer", "warning"),
    "torch": ("launching", "forward"),
    "compile": ("compiling", "info"),
    "import": ("importing", "info"),
    "io": ("I/O", "warning"),
    "sleep": ("sleeps", "dim"),
    "idle": ("idle", "faint"),
    "python": ("Python", "text"),
}
#: Activities that are torch's own work without a GPU, done where it is called.
_ON_CPU = ("torch", "sync", "transfer")


def _columns(rows: Sequence[LineShare], samples: int, width: int, *, on_gpu: bool) -> list[Column[LineShare]]:
    """The columns that these rows need, within the screen."""
    gauge = 12 if width >= 110 else 8 if width >= 90 else 5
    doing = 17 if width >= 90 else 16 if width >= 66 else 0
    rest = max(width - 6 - gauge - 8 - doing, 0)
    spot = places_width((row.place for row in rows), max(rest - MIN_TEXT, rest // 2))

    def own(row: LineShare) -> float:
        return row.own / samples if samples else 0.0

    def weight(row: LineShare) -> str:
        return "strong" if own(row) >= 0.1 else "text"

    def activity(row: LineShare) -> Span:
        return _activity_span(row.activity, on_gpu=on_gpu)

    return shown_columns(
        Column("self", 6, lambda row: (percent(own(row)) if row.own else "", weight(row)), ">"),
        Column("", gauge, lambda row: (f" {bar(own(row), gauge - 2)}", activity(row).role if row.own else "track")),
        Column("total", 7, lambda row: (percent(row.total / samples if samples else 0.0), "dim"), ">", 1),
        Column("doing", doing, lambda row: activity(row)._replace(text=activity(row).text if row.own else "")),
        Column("line", spot, lambda row: place_column(row.place, spot)),
        Column("code", rest - spot, lambda row: (code(row.place), weight(row) if row.user else "dim")),
    )


def doing_line(table: LineTable, width: int, *, on_gpu: bool) -> Line:
    """All samples by activity, the most frequent first: ``waits for data 62 %  torch 30 %``."""
    merged: Counter[Span] = Counter()
    for activity, count in table.activities:
        merged[_activity_span(activity, on_gpu=on_gpu)] += count
    shares = [(name, percent(count / table.samples)) for name, count in merged.most_common()]
    parts = [line(("● ", name.role), (name.text, "text"), (f" {share}  ", "strong")) for name, share in shares]
    return chained(parts, Span(""), width)


def detail_line(row: LineShare, samples: int, width: int) -> Line:
    """The line under the cursor in full."""
    share = f"{percent(row.own / samples, 1)} self, {percent(row.total / samples, 1)} total" if samples else ""
    head = line((function_text(row.place.function), "strong"), "  ", (share, "text"), "  ")
    spot = clipped_left(full_place(row.place), width - line_width(head))
    return (*head, Span(spot, "key"))


class LinesView:
    """The table with its cursor, which stays on its line."""

    HEAD_LINES = 3  # above the rows: what is done, a blank, the names of the columns

    def __init__(self) -> None:
        self.libraries = False
        self.sort = 0
        self.rows: Rows[LineShare] = Rows(lambda row: row.place[:3])
        self.pointed: Place | None = None  # the line that the cursor goes to once it is listed

    def draw(
        self,
        samples: Samples,
        phase: str | None,
        width: int,
        height: int,
        *,
        on_gpu: bool,
        code_of: Callable[[Place], CodeLines] = lambda _: (),
    ) -> list[Line]:
        """Exactly ``height`` lines; below the table the code around the chosen line, if it is known."""
        table = samples.table(phase, libraries=self.libraries)
        self.rows.rows = table.lines  # lines with samples of their own first
        if SORTS[self.sort] == "total":
            self.rows.rows = sorted(table.lines, key=lambda row: (-row.total, -row.own, row.place))
        spot = self.pointed
        pointed = next((r for r in self.rows.rows if spot is not None and r.place[:2] == spot[:2]), None)
        if pointed is not None:
            self.rows.select(pointed)
            self.pointed = None
        chosen = self.rows.selected
        code: list[Line] = []
        if chosen is not None and height >= 16:
            near = code_of(chosen.place)
            code = [(), *code_lines(near, chosen.place.line)] if near else []
        shown = self.rows.in_view(max(height - self.HEAD_LINES - 1 - len(code), 1))
        columns = _columns([row for row, _ in shown], table.samples, width, on_gpu=on_gpu)
        lines = [doing_line(table, width, on_gpu=on_gpu), (), head_line(columns, SORTS[self.sort])]
        lines += [row_line(columns, row, cursor=cursor) for row, cursor in shown]
        below = detail_line(chosen, table.samples, width) if chosen is not None else ()
        return [*padded([*lines, *code], height - 1), below]


def _activity_span(activity: Activity, *, on_gpu: bool) -> Span:
    """The word for an activity, in its colour; ``on_gpu``: whether this run uses a GPU."""
    if not on_gpu and activity in _ON_CPU:
        return Span("torch", "forward")
    return Span(*_ACTIVITIES[activity])


def node_of_line(tree: CallTree, row: LineShare) -> Call | None:
    """The node in which most samples of a line lie."""
    at = row.place
    nodes = [n for n in tree.root.walk() if (n.file, n.function) == (at.file, at.function) and n.lines[at.line]]
    return max(nodes, key=lambda node: node.lines[at.line], default=None)


def visible_nodes(tree: CallTree, opened: AbstractSet[int]) -> list[Call]:
    """The rows: the root's children and, below each opened node, its children; the heaviest first."""
    rows: list[Call] = []
    stack = tree.root.ordered()[::-1]
    while stack:
        node = stack.pop()
        rows.append(node)
        if node.id in opened:
            stack += reversed(node.ordered())
    return rows


def _tree_columns(tree: CallTree, opened: AbstractSet[int], width: int) -> list[Column[Call]]:
    """A function's shares, its place in the tree, its hottest line."""
    gauge = 12 if width >= 110 else 8 if width >= 90 else 5

    def function(node: Call) -> Line:
        return line(
            (indent(node.depth - 1, width), "faint"),
            (("▾ " if node.id in opened else "▸ ") if node.children else "  ", "dim"),
            (plain(node.function), "strong" if node.user else "text"),
            "  ",
            place_span(node.place(), "key" if node.user else "dim"),
            "  ",
            *_node_code(node),
        )

    return [
        Column("total", 6, lambda n: (percent(tree.share(n.total)), "strong" if tree.share(n.total) >= 0.1 else "text"),
               ">", 1, role="key"),
        Column("", gauge, lambda node: (bar(tree.share(node.total), gauge - 1), node.phase() or "dim")),
        Column("self", 6, lambda node: (percent(tree.share(node.own)) if node.own else "", "dim"), ">", 2),
        Column("function", max(width - gauge - 15, 0), function),
    ]  # fmt: skip


def _node_code(node: Call) -> Line:
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


def _node_detail(tree: CallTree, node: Call, width: int) -> Line:
    """The node under the cursor in full: name, shares, place."""
    shares = f"{percent(tree.share(node.total), 1)} total, {percent(tree.share(node.own), 1)} self"
    here = node.place()
    spot = full_place(here) if node.file else "all samples"
    phase, call = node.phase(), node.call()
    in_phase = line("  ", (phase, phase)) if phase else ()
    caller = line(("  ← ", "faint"), place_span(call, "dim")) if call else ()
    name = line((plain(node.function), "strong"), "  ", (shares, "text"))
    room = width - line_width(name) - line_width(in_phase) - 2
    caller = caller if line_width(caller) + len(spot) <= room else ()
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
        if self.rows.key not in nodes:  # the cursor's node has gone: take the innermost of its callers that is left
            self.rows.key = next((number for number in reversed(self._trail) if number in nodes), None)
        chosen = self.rows.selected
        self._trail = [node.id for node in chosen.path()] if chosen is not None else []
        columns = _tree_columns(tree, self.opened, width)
        shown = self.rows.in_view(max(height - self.HEAD_LINES - 1, 1))
        lines = [head_line(columns), *(row_line(columns, node, cursor=cursor) for node, cursor in shown)]
        return [*padded(lines, height - 1), _node_detail(tree, chosen, width) if chosen is not None else ()]

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
        is_open = node.id in self.opened and bool(node.children)
        if step > 0 and is_open:
            self.rows.select(node.ordered()[0])
        elif step > 0:
            while node.children:  # with the only children below it
                self.opened.add(node.id)
                if len(node.children) > 1:
                    break
                (node,) = node.children.values()
        elif is_open:
            self.opened.discard(node.id)
        elif node.parent is not None and node.parent.parent is not None:  # from a closed node go to its caller
            self.rows.select(node.parent)

    def enter(self) -> None:
        """Open or close the node."""
        node = self.rows.selected
        if node is not None and node.id in self.opened:
            self.opened.discard(node.id)
        else:
            self.sideways(1)
