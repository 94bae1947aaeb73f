"""The timeline of a trace drawn: a lane a row, phases in their colours, names where there is room."""

from __future__ import annotations

from msgspec import Struct

from tuimon.trace.timeline import Block, Lane, Timeline, blocks
from tuimon.views.format import ms, phase_name, plain
from tuimon.views.tui.drawing.lines import Line, Span, column, justified, line

_LABEL = 12
_LEVELS = "▁▂▃▄▅▆▇█"
_LEAST_NS = 1_000
_STEP_OF_ZOOM = 2.0
#: A key moves by this share of what is in view.
_PAN = 0.25


class View(Struct):
    """The part of a timeline in view."""

    timeline: Timeline
    begin_ns: float = 0.0
    end_ns: float = 0.0

    def __post_init__(self) -> None:
        self.whole()

    @property
    def length_ns(self) -> float:
        """How much is in view."""
        return self.end_ns - self.begin_ns

    def whole(self) -> None:
        """Show all."""
        self.begin_ns, self.end_ns = float(self.timeline.begin_ns), float(max(self.timeline.end_ns, 1))

    def zoom(self, steps: int) -> None:
        """Show half as much, or twice, around the middle."""
        middle = (self.begin_ns + self.end_ns) / 2
        total = float(self.timeline.end_ns - self.timeline.begin_ns)
        length = min(max(self.length_ns / _STEP_OF_ZOOM**steps, _LEAST_NS), max(total, _LEAST_NS))
        self._set(middle - length / 2, length)

    def pan(self, steps: int) -> None:
        """Move to the right, or to the left."""
        self._set(self.begin_ns + steps * _PAN * self.length_ns, self.length_ns)

    def go_to_step(self, steps: int) -> None:
        """Show the next step alone, or the one before."""
        found = self.timeline.steps
        if not found:
            return
        middle = (self.begin_ns + self.end_ns) / 2
        at = next((i for i, step in enumerate(found) if middle < step.end_ns), len(found) - 1)
        is_one = self.length_ns < 1.5 * found[at].length_ns
        at = min(max(at + steps, 0), len(found) - 1) if is_one else (0 if steps > 0 else len(found) - 1)
        self._set(found[at].begin_ns, found[at].length_ns)

    def _set(self, begin_ns: float, length: float) -> None:
        first, last = self.timeline.begin_ns, self.timeline.end_ns
        self.begin_ns = max(float(first), min(begin_ns, last - length))
        self.end_ns = self.begin_ns + length


def timeline_lines(view: View, width: int) -> list[Line]:
    """A ruler, then a row for each lane, groups apart by their labels."""
    room = max(width - _LABEL, 8)
    lines = [_ruler(view, room)]
    group = ""
    for lane in view.timeline.lanes:
        name = plain(lane.name)
        if lane.group.startswith("GPU") and lane.group != group:
            name = f"{lane.group}"
        group = lane.group
        lines.append((Span(column(name, _LABEL - 1) + " ", "dim"), *_row(lane, view, room)))
    return lines


def _ruler(view: View, room: int) -> Line:
    first = view.timeline.begin_ns
    left = Span(f"{ms((view.begin_ns - first) / 1e6)}", "faint")
    right = Span(f"{ms((view.end_ns - first) / 1e6)}", "faint")
    return justified(line((" " * _LABEL, ""), left), [right], room + _LABEL)


def _row(lane: Lane, view: View, room: int) -> list[Span]:
    spans: list[Span] = []
    x = 0
    for number, block in enumerate(blocks(lane, view.begin_ns, view.end_ns, room)):
        if block.x < x:
            continue
        if block.x > x:
            spans.append(Span("·" * (block.x - x) if lane.group.startswith("GPU") else " " * (block.x - x), "track"))
        spans += _block(block, shaded=number % 2 == 1, whole=lane.group == "loop")
        x = block.x + block.width
    if x < room:
        spans.append(Span("·" * (room - x) if lane.group.startswith("GPU") else " " * (room - x), "track"))
    return spans


def _block(block: Block, *, shaded: bool, whole: bool) -> list[Span]:
    """An item with as much of its name as fits; ``whole``: a step's number or a phase's name, or nothing of it."""
    role = block.phase if block.phase in ("data", "forward", "backward", "optimizer", "other", "eval") else "other"
    if not block.name:
        level = min(int(block.share * len(_LEVELS)), len(_LEVELS) - 1)
        return [Span(_LEVELS[level], role)]
    style = f"{role} {'shade' if shaded else 'tint'}"
    room = block.width - 1
    name = plain(block.name).removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")
    if whole and len(name := phase_name(name)) > room:
        name = name.removeprefix("step ") if len(name.removeprefix("step ")) <= room else ""
    text = column(name, room) if room >= 3 or whole else " " * room
    return [Span("▏", f"{style} edge"), Span(text, style)]
