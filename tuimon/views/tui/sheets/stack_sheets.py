"""Sheets of stacks: of all ranks at a standstill, those that hold the others up first; of one thread, with its code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tuimon.node_ids import own_id
from tuimon.records import Frame
from tuimon.session.session import Session
from tuimon.session.stacks.call_tree import program_part
from tuimon.session.stacks.process import LatestStack
from tuimon.session.standstills import (
    BESIDE,
    StandingRole,
    StandingThreads,
    rank_list,
    standing_groups,
    what_text,
    who_text,
)
from tuimon.session.threads import ThreadRow
from tuimon.text import AROUND_LINES
from tuimon.views.format import duration, percent, plain
from tuimon.views.run_text import standstill_head
from tuimon.views.tui.drawing.lines import Line, Span, clip, justified, line, line_width, paragraph, places_width
from tuimon.views.tui.panes.threads_pane import thread_lines
from tuimon.views.tui.sheets.sheet import CodeAround, CodeLines, Sheet, code_lines, frame_line

if TYPE_CHECKING:
    from tuimon.sources.source_text import CloseUp

#: Innermost frames shown of a group that holds others up (True), and of a group that waits (False).
_FRAMES = {True: 10, False: 4}
#: Kind of a group -> its colour; a group that waits is dim.
_ROLES = {
    "stopped": "critical",
    "ended": "critical",
    "own": "critical",
    "unknown": "warning",
    "helper": "data",
    "batch": "data",
}


def standstill_lines(session: Session, width: int) -> list[Line]:
    """The latest standstill: when nothing moved, a cell for each rank, then the groups."""
    past = next(reversed(session.standstills.past))
    goes_on = past.ended_s is None and session.exit is None
    lines = paragraph(plain(standstill_head(past, session)), width, "critical bold" if goes_on else "strong")
    after = f"stacks taken {past.taken.quiet_s:.0f} s after the last thing moved"
    lines += paragraph(after if goes_on else f"{after}; it went on" if past.ended_s else f"{after}", width, "dim")
    for one in past.stuck:
        lines += [(), *paragraph(f"flight recorder: {plain(one.text)} ({plain(one.group)})", width, "critical")]
    groups = standing_groups(past.taken)
    roles = _roles(groups)
    lines += [(), *_strip(groups, roles, width)]
    for group, role in zip(groups, roles, strict=True):
        if group.kind != "idle":
            lines += [(), *_group(group, role, width)]
    idle = Counter[StandingRole]()
    for group in groups:
        idle[group.role] += group.number if group.kind == "idle" else 0
    threads = idle["thread"] + past.taken.idle
    rest = [
        (idle["worker"], "worker that waits for work", "workers that wait for work"),
        (threads, "idle helper thread", "idle helper threads"),
        (past.taken.folded, "more", "more"),
    ]
    text = ", ".join(f"{number} {one if number == 1 else several}" for number, one, several in rest if number)
    return [*lines, *([(), *paragraph(f"not listed: {text}", width, "dim")] if text else [])]


def _roles(groups: Sequence[StandingThreads]) -> list[str]:
    """A colour for each group; if all ranks wait, but in different places, the smallest group is marked."""
    waiting = [group for group in groups if group.kind == "ranks"]
    odd = waiting[0] if len(waiting) == len([g for g in groups if g.role == "rank"]) and len(waiting) > 1 else None
    found = []
    for group in groups:
        if group is odd:
            found.append("warning")
        elif group.kind == "ranks":
            found.append("backward" if group.doing == "backward()" else "forward")
        else:
            found.append(_ROLES.get(group.kind, "dim"))
    return found


def _strip(groups: Sequence[StandingThreads], roles: Sequence[str], width: int) -> list[Line]:
    """A cell for each rank in the colour of its first group, or of its worker's; empty for a single process."""
    colour: dict[int, str] = {}
    for group, role in zip(groups, roles, strict=True):
        for rank in group.ranks if group.kind not in BESIDE else ():
            colour.setdefault(rank, role)
    if len(colour) < 2:
        return []
    ranks = sorted(colour)
    wide = 2 * len(ranks) <= width - 8
    row: list[Span] = [Span("ranks  ", "dim")]
    rows: list[Line] = []
    for rank in ranks:
        if line_width(row) + 2 > width:
            rows.append(tuple(row))
            row = [Span("       ")]
        row.append(Span("█ " if wide else "█", colour[rank]))
    return [*rows, tuple(row)]


def _group(group: StandingThreads, role: str, width: int) -> list[Line]:
    who = who_text(group)
    head = [Span("█ ", role), Span(who[:1].upper() + who[1:], f"{role} bold"), Span(f" {what_text(group)}", "strong")]
    notes = []
    if len(group.ranks) > 1 and group.role == "rank":
        notes.append(f"ranks {rank_list(group.ranks)}")
    pids = group.own_pids
    notes.append(
        f"pid {pids[0]}" if len(pids) == 1 else f"pids {', '.join(map(str, pids[:4]))}" + " …" * (len(pids) > 4)
    )
    note = " · ".join(notes)
    if line_width(head) + len(note) + 2 <= width:
        return [justified(head, line((note, "dim")), width), *_stack(group, width)]
    return [clip(head, width), *paragraph(note, width, "dim", indent=2), *_stack(group, width)]


def _stack(group: StandingThreads, width: int) -> list[Line]:
    """The innermost frames, innermost first; then the number of the others."""
    most = _FRAMES[group.kind in ("own", "stopped", "thread")]
    inner = list(reversed(group.frames))
    shown = inner[:most]
    if not any(frame.user for frame in shown):  # the innermost frame of the user's code lies further out
        shown += [frame for frame in inner[most:] if frame.user][:1]
    spot = places_width(shown, width // 2)
    rows = [clip(frame_line(frame, spot, Span("    ")), width) for frame in shown]
    more = len(group.frames) - len(shown) + group.outer
    text = f"{more} frames more, towards the root" if more > 1 else "one frame more, towards the root"
    return rows + ([line("    ", (text, "dim"))] if more else [])


FRAMES_SHOWN = 60

_NO_STACK = "no stack in the last samples: a native thread, one that sleeps all the time, or one not sampled yet"


def stack_lines(stack: LatestStack, code_of: Callable[[Frame], CodeLines], width: int) -> list[Line]:
    """The frames, innermost first; under the innermost line of the user's code the lines around it."""
    head = [Span("latest stack", "strong"), Span(", innermost first", "dim")]
    if stack.share < 0.995:
        head.append(Span(f" · {percent(stack.share)} of the last samples", "dim"))
    if stack.same_for_s >= 5.0:
        head += [Span("  "), Span(f" same stack for {duration(stack.same_for_s)} ", "warning badge")]
    lines: list[Line] = [(), tuple(head)]
    frames = program_part(stack.node.frames)[::-1]
    own = next((frame for frame in frames if frame.user), None)
    spot = places_width(frames, width // 2)
    shown: list[Frame] = [*frames[:FRAMES_SHOWN]]
    if own is not None and own not in shown:
        shown.append(own)
    for frame in shown:
        lines.append(frame_line(frame, spot, Span("▸ " if frame is own else "  ", "key bold")))
        if frame is own:
            lines += code_lines(code_of(frame), frame.line)
    hidden = len(frames) - len(shown)
    return [*lines, line((f"  … {hidden} more frames", "dim"))] if hidden > 0 else lines


class ThreadSheet(Sheet):
    """One thread, live; files are read on another thread."""

    def __init__(self, row: ThreadRow, session: Session, closeup: CloseUp | None) -> None:
        super().__init__(f"Thread {own_id(row.tid)}", self._lines)
        self._row = row
        self._session = session
        self._code = CodeAround(self, closeup, self.text.update)

    def update(self) -> None:
        """Show the thread as it is now, at each tick."""
        mine = (self._row.pid, self._row.tid)
        rows = self._session.shown().of(self._row.pid).threads
        found = next((row for row in rows if (row.pid, row.tid) == mine), None)
        if found is None or self._row.count <= found.count:  # else the row stands for several threads
            self._row = found or replace(self._row, ended=True)
        super().update()

    def _lines(self, width: int) -> list[Line]:
        own = self._session.shown().of(self._row.pid)
        stack, drawn = own.stacks.threads.stack_of(self._row.tid), [(), line((_NO_STACK, "dim"))]
        if stack is not None:
            drawn = stack_lines(stack, lambda at: self._code.of(at, AROUND_LINES, self._session, own.pid), width)
        hot_lines = own.samples_of(own.tid, now=True).without_imports.lines()
        return thread_lines(self._row, hot_lines, width, drawn)
