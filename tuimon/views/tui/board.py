"""The board: all panes and their places, which follow from the terminal's size and the panes' contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Click
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Input, Static

from tuimon.records import Cost
from tuimon.session.session import Session
from tuimon.views.format import advice, percent, size
from tuimon.views.report.report import parts_of
from tuimon.views.tui.drawing.canvas import Canvas, Pane
from tuimon.views.tui.drawing.lines import Line, justified, line, line_width
from tuimon.views.tui.panes.gpu_pane import GpuPane
from tuimon.views.tui.panes.loaders_pane import LoadersPane
from tuimon.views.tui.panes.output_pane import OutputPane
from tuimon.views.tui.panes.ranks_pane import RanksPane
from tuimon.views.tui.panes.step_pane import StepPane
from tuimon.views.tui.panes.threads_pane import ThreadsPane
from tuimon.views.tui.panes.title_line import TitleLine
from tuimon.views.tui.panes.verdict_pane import ROWS, VerdictPane
from tuimon.views.tui.profile.profile_pane import ProfilePane

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding

#: Panes by importance: when rows are short, the last give way first.
IMPORTANCE = ("verdict", "step", "loaders", "threads", "gpu", "output")
MIN_WIDTH, MIN_HEIGHT = 40, 10
NARROW_BELOW = 100
_FRAME = 2  # rows of a border
_LEAST = {"step": 8, "threads": 5, "gpu": 4, "output": 4, "loaders": 6}


class Box(NamedTuple):
    """A place on the screen, in cells."""

    x: int
    y: int
    width: int
    height: int


#: Rows that each pane could fill, by name; 0: it has only one line to show, with a reason. ``ranks``: the rows of the
#: Step pane down to its last rank.
WantedRows = Mapping[str, int]


def lay_out(
    width: int, height: int, shown: AbstractSet[str], wanted: WantedRows, zoomed: str | None = None
) -> dict[str, Box]:
    """Boxes of all that is visible: ``title``, ``verdict``, ``keys`` and the panes."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return {"small": Box(0, 0, width, height)}
    boxes = {"title": Box(0, 0, width, 1)}
    top = 1
    if "verdict" in shown:
        rows = wanted["verdict"] if height >= 20 else min(wanted["verdict"], ROWS)  # its least on a low screen
        boxes["verdict"] = Box(0, top, width, rows)
        top += rows
    bottom = height
    if height >= 14:
        bottom -= 1
        boxes["keys"] = Box(0, bottom, width, 1)
    body = Box(0, top, width, bottom - top)
    panes = shown - {"verdict"}
    if zoomed:
        boxes[zoomed] = body
    elif width < NARROW_BELOW:
        boxes |= _stacked(body, panes, wanted)
    else:
        boxes |= _over_lines(body, panes, wanted)
    return boxes


def right_width(width: int) -> int:
    """Columns of the GPU and output panes, borders and all."""
    if width < NARROW_BELOW:
        return width
    return width - width // 2


def _over_lines(body: Box, panes: AbstractSet[str], wanted: WantedRows) -> dict[str, Box]:
    """Two columns; a right-hand pane with only one line to show stands below them, as wide as the screen."""
    single = [name for name in ("gpu", "output") if name in panes and not wanted[name]]
    others = panes - set(single)
    if not others or not single:
        return _columns(body, panes, wanted)
    lines = single[: max(body.height - _LEAST["step"] - _LEAST["threads"], 0)]
    upper = body._replace(height=body.height - len(lines))
    below = {name: Box(body.x, upper.y + upper.height + at, body.width, 1) for at, name in enumerate(lines)}
    return _columns(upper, others, wanted) | below


def _columns(body: Box, panes: AbstractSet[str], wanted: WantedRows) -> dict[str, Box]:
    """Phases next to GPU, over output; below them, as wide as the screen, loaders and threads, which show code."""
    least = _LEAST["step"] + _LEAST["loaders"]
    if "loaders" in panes and body.height < least + _LEAST["threads"]:
        panes = panes - {"threads"} if body.height >= least else {"loaders"}
    if panes == {"loaders"}:
        return {"loaders": body}
    right = [name for name in ("gpu", "output") if name in panes]
    upper, below = body.height, {}
    if "loaders" in panes:
        below["loaders"] = min(wanted["loaders"] + _FRAME, max(_LEAST["loaders"], body.height // 3))
        upper -= below["loaders"]
    if "threads" in panes:
        below["threads"] = upper
        if right or "step" in panes:  # as many as they fill, in steps of four so that panes seldom move
            rows = -(-(wanted["threads"] - 1) // 4) * 4 + _FRAME + 1
            least = max(_LEAST["step"], min(wanted["step"] + _FRAME, upper // 2))
            # a chart of more than 44 rows shows no more
            below["threads"] = max(_LEAST["threads"], upper - max(least, 44), min(rows, upper - least))
        upper -= below["threads"]
    boxes, column = {}, body._replace(height=upper)
    if "step" in panes:
        left_width = body.width - right_width(body.width) if right else body.width
        boxes["step"] = column._replace(width=left_width)
        column = column._replace(x=left_width, width=body.width - left_width)
    y = body.y + upper
    for name, rows in below.items():
        boxes[name] = Box(body.x, y, body.width, rows)
        y += rows
    return boxes | _gpu_over_output(column, right, wanted)


def _gpu_over_output(column: Box, names: list[str], wanted: WantedRows) -> dict[str, Box]:
    if len(names) < 2:
        return {name: column for name in names if column.height > 0}
    # the rows that the GPUs fill, two thirds at most, so that the output keeps its room
    most = max(column.height * 2 // 3, _LEAST["gpu"])
    rows = max(min(wanted["gpu"] + _FRAME, most, column.height - _LEAST["output"]), 0)
    above, below = column._replace(height=rows), column._replace(y=column.y + rows, height=column.height - rows)
    return {name: box for name, box in zip(names, (above, below), strict=True) if box.height > 0}


def _stacked(body: Box, panes: AbstractSet[str], wanted: WantedRows) -> dict[str, Box]:
    """One column: each pane gets its least rows by importance, then the rest goes to panes that can fill it."""
    least = {name: rows if wanted[name] else 1 for name, rows in _LEAST.items()}
    room = body.height
    heights: dict[str, int] = {}
    for name in IMPORTANCE:
        if name in panes and (least[name] <= room or not heights):
            heights[name] = min(least[name], room)
            room -= heights[name]
    if "step" in heights:  # first of all, the ranks that hold the others up
        more = min(room, max(0, wanted["ranks"] + _FRAME - heights["step"]))
        heights["step"] += more
        room -= more
    _share_out(room, heights, wanted)
    boxes: dict[str, Box] = {}
    y = body.y
    for name in ("step", "gpu", "output", "loaders", "threads"):
        if name in heights:
            boxes[name] = Box(body.x, y, body.width, heights[name])
            y += heights[name]
    return boxes


def _share_out(room: int, heights: dict[str, int], wanted: WantedRows) -> None:
    """Add the rows that are left, one at a time: to panes that can fill more, then to the last one."""
    while room > 0:
        hungry = [name for name in heights if wanted[name] and heights[name] < wanted[name] + _FRAME]
        hungry = hungry or [name for name in heights if wanted[name]][-1:]
        if not hungry:
            return
        for name in hungry[:room]:
            heights[name] += 1
        room -= len(hungry[:room])


#: In the order of their keys, 1 to 6.
PANES = ("step", "gpu", "output", "threads", "verdict", "loaders")
#: Columns and rows of the screen from which the loaders are shown without pressing their key.
_ROOM_FOR_LOADERS = (120, 40)


class Pacing:
    """Decides at which ticks to draw: after something new has come, but at most once a window.

    Records of one window come over several ticks. With two ticks a window and something new at each of five ticks, the
    first, third and fifth draw; drawing is half of what the full screen costs.
    """

    def __init__(self, ticks_per_window: int) -> None:
        self._every = max(ticks_per_window, 1)
        self._since = self._every  # ticks since the last drawing
        self._stale = True

    def is_due(self, changed: bool, paused: bool = False) -> bool:
        """True if this tick draws; ``changed``: something has come since the last tick."""
        self._since += 1
        self._stale = self._stale or changed
        if paused or not self._stale or self._since < self._every:
            return False
        self._since, self._stale = 0, False
        return True


class KeysLine(Canvas):
    """The last line: keys in the words of their bindings, those of the focused pane first; a click presses one.

    At its right is tuimon's own cost.
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[frozenset[str], Cost | None] = (frozenset(), None)

    def on_mount(self) -> None:
        """Show the keys of the focused pane whenever it changes."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.fit())

    def show(self, idle: frozenset[str], cost: Cost | None) -> None:
        """Show all keys but those of ``idle`` actions, and tuimon's own cost."""
        if (idle, cost) != self._shown:
            self._shown = idle, cost
            self.fit()

    def fit(self) -> None:
        """Show as many keys as fit next to the cost."""
        left = tuple(chain.from_iterable(part for _, part in self._keys()))
        cost = self._cost()
        self.show_lines([justified(left, line((cost, "dim")) if cost else (), self.content_size.width)])

    def _cost(self) -> str:
        """tuimon's own cost, as wordy as the width allows."""
        cost = self._shown[1]
        if cost is None:
            return ""
        wide = self.content_size.width >= NARROW_BELOW
        lost = f", {cost.queue_dropped} records lost" if cost.queue_dropped else ""
        return f"tuimon {percent(cost.cpu_ratio)}{f' cpu, {size(cost.rss_bytes)}' if wide else ''}{lost} "

    def on_click(self, event: Click) -> None:
        """Press the key under the pointer."""
        end = 0
        for binding, part in self._keys():
            end += line_width(part)
            if event.x < end:
                self.app.simulate_key(binding.key)
                return

    def _keys(self) -> list[tuple[Binding, Line]]:
        """`` q quit ``, `` ? help `` ...: the bindings that fit."""
        bindings: dict[str, Binding] = {}
        for active in self.screen.active_bindings.values():
            if active.binding.show and active.binding.action not in self._shown[0]:
                bindings.setdefault(active.binding.action, active.binding)
        keys = [
            (each, line(" ", (self.app.get_key_display(each), "key bold"), (f" {each.description} ", "dim")))
            for each in bindings.values()
        ]
        ends = accumulate(line_width(part) for _, part in keys)
        room = self.content_size.width - len(self._cost()) - bool(self._cost())
        return [key for key, end in zip(keys, ends, strict=True) if end <= room]


class Board(Widget):
    """Holds the panes and their places."""

    def __init__(self) -> None:
        super().__init__(id="board")
        self.title_line = TitleLine(id="title")
        self.verdict = VerdictPane(id="verdict")
        self.step = StepPane(id="step")
        self.gpu = GpuPane(id="gpu")
        self.output = OutputPane(id="output")
        self.loaders = LoadersPane(id="loaders")
        self.threads = ThreadsPane(id="threads")
        self.profile = ProfilePane(id="profile")  # shown alone, by h and c
        self.ranks = RanksPane(id="ranks")  # shown alone, by r
        self.keys_line = KeysLine(id="keys")
        self._announced: dict[str, str] = {}  # message, by source
        # Any: each pane has a view state of its own type
        self.panes: tuple[Pane[Any], ...] = (
            self.title_line, self.verdict, self.step, self.gpu, self.output, self.loaders,
            self.threads, self.profile, self.ranks,
        )  # fmt: skip
        self._placed: tuple[Widget, ...] = (*self.panes, self.keys_line, Static("terminal too small", id="small"))
        self.zoomed: str | None = None
        self._before: Widget | None = None  # the focus before a pane was zoomed
        self._shown = set(PANES)
        self._loaders_chosen: bool | None = None  # True or False once its key has shown or hidden them
        self._most = Counter[tuple[str, int]]()  # rows wanted so far, by pane and its inner width
        self._boxes: dict[str, Box] = {}

    def compose(self) -> ComposeResult:
        """All panes, in the order of Tab; each in its place before the first layout, so that it is drawn once."""
        self.place_panes(self.app.size)
        yield from self._placed

    def show(self, session: Session, findings: Sequence[Finding], idle: frozenset[str] = frozenset()) -> None:
        """Show the session as it is now in all panes, and the keys of all actions that are not ``idle``."""
        now = parts_of(session.shown())
        for pane in self.panes:
            pane.update_state(now, findings)
        self.place_panes()
        self.keys_line.show(idle, session.cost)
        for pane in self.panes:
            pane.redraw()
        # show notices that no pane shows, each once, in a corner of the screen
        shown = set(chain.from_iterable(pane.sources for pane in self.panes))
        for source, notice in session.notices.items():
            if source not in shown and self._announced.get(source) != notice.message:
                self._announced[source] = notice.message
                text = advice(notice.message, notice.hint, source)
                if notice.level == "warning":
                    self.notify(text, severity="warning", timeout=15.0, markup=False)
                else:
                    self.notify(text, markup=False)

    def place_panes(self, size: Size | None = None) -> None:
        """Move the panes to their places, if these changed; ``size``: of the board before its first layout."""
        width, height = size = size or self.size
        if not width:
            return
        wanted = self._wanted_rows(size)
        # the panes that have not been hidden; the loaders only where they have workers and there is room for them
        with_loaders = self._loaders_chosen
        if with_loaders is None:
            least_width, least_height = _ROOM_FOR_LOADERS
            with_loaders = (
                any(row.facts.workers for row in self.loaders.state or ())
                and width >= least_width
                and height >= least_height
            )
        shown = self._shown | {"loaders"} if with_loaders else self._shown - {"loaders"}
        boxes = lay_out(width, height, shown, wanted, self.zoomed)
        if boxes == self._boxes:
            return
        self._boxes = boxes
        for widget in self._placed:
            box = boxes.get(widget.id or "")
            widget.display = box is not None
            if box is not None:
                widget.styles.offset = (box.x, box.y)
                widget.styles.width, widget.styles.height = box.width, box.height
        for pane in (self.gpu, self.output):
            is_line = not wanted[pane.id or ""]
            pane.set_class(is_line, "-line")
            pane.can_focus = not is_line  # alone on the screen it would leave that empty

    def box(self, name: str) -> Box | None:
        """The place of a pane; None while it is hidden."""
        return self._boxes.get(name)

    def toggle(self, name: str) -> None:
        """Hide a pane, or show it again; one that has no room next to the others is shown alone."""
        pane = next(pane for pane in self.panes if pane.id == name)
        if name == "loaders":
            self._loaders_chosen = self.box(name) is None
        elif name in self._shown and self.box(name) is None and not self.zoomed and pane.can_focus:
            self.zoom(name)
            self.screen.set_focus(pane)
            return
        elif name != self.zoomed:
            self._shown ^= {name}
        self.zoom(None)

    def zoom(self, name: str | None) -> None:
        """Show one pane alone; with None, all again."""
        before, self.zoomed = self.zoomed, name
        if name is not None and before is None:
            self._before = self.screen.focused
        self.place_panes()
        if name is None and before is not None:
            self.screen.set_focus(self._before)

    async def open_filter(self) -> None:
        """Open the filter's input over the keys."""
        if self.query("#filter"):
            return
        if self.box("threads") is None:
            self._shown.add("threads")
            self.zoom(None)
        hint = "filter threads: role, name, state, file or code"
        entry = Input(self.threads.filter_text, placeholder=hint, id="filter")
        await self.mount(entry)
        entry.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter at every key."""
        self.threads.filter_by(event.value)

    async def on_input_submitted(self) -> None:
        """Keep the filter."""
        await self.close_filter()

    async def close_filter(self) -> None:
        """Remove the filter's input, if it is open."""
        if self.query("#filter"):
            self.threads.focus()
            await self.query("#filter").remove()

    def on_resize(self) -> None:
        self.place_panes()

    def _wanted_rows(self, size: Size) -> WantedRows:
        inner_width, most = right_width(size.width) - 4, size.height * 3 // 5  # within the frame
        widths = {"threads": size.width - 4, "loaders": size.width - 4}
        wanted = {
            pane.id: pane.rows_wanted(widths.get(pane.id, inner_width), most) for pane in self.panes if pane.id in PANES
        }
        wanted |= {"verdict": self.verdict.rows_wanted(size.width, most), "ranks": self.step.rank_rows()}
        for name in ("threads", "loaders", "gpu"):  # rows that come and go there do not move the panes
            wanted[name] = self._most[name, inner_width] = max(wanted[name], self._most[name, inner_width])
        return wanted
