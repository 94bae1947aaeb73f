"""Where the time goes: hot lines, call tree and icicle, three views of the same samples."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.message import Message

from tuimon.session.rows import ThreadRow
from tuimon.session.samples.profile import Profile
from tuimon.session.scope import EXTENTS, Scope, newest, same_role
from tuimon.views.tui.drawing.lines import Line, Span
from tuimon.views.tui.drawing.pane import Pane
from tuimon.views.tui.profile.calltree import TreeView
from tuimon.views.tui.profile.header import (
    FILTERS,
    Mode,
    empty_lines,
    filters,
    phases_line,
    ranges_line,
    tabs_line,
    who_text,
)
from tuimon.views.tui.profile.hotlines import SORTS, LinesView
from tuimon.views.tui.profile.icicle import IcicleView
from tuimon.views.tui.profile.tree_cursor import TreeCursor, node_of_line

#: Between two looks at new samples lies at least so many times what one look takes.
REST_FACTOR = 25
REST_ABOVE_S = 0.02

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session


class ProfilePicture(NamedTuple):
    """The samples of a scope."""

    profile: Profile  # the same object as long as no new sample came
    who: str
    on_gpu: bool


class ProfilePane(Pane[ProfilePicture]):
    """Takes the place of all panes while it is open; computes nothing while it is not."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home,g", "move(-100000)", show=False),
        Binding("end,G", "move(100000)", show=False),
        Binding("left", "sideways(-1)", show=False),
        Binding("right", "sideways(1)", show=False),
        Binding("enter", "enter", show=False),
        Binding("backspace", "zoom_out", show=False),
        Binding("escape", "back", show=False),
        Binding("f", "phase(1)", show=False),
        Binding("F", "phase(-1)", show=False),
        Binding("t", "extent", show=False),
        Binding("u", "libraries", show=False),
        Binding("s", "sort", show=False),
    ]

    class Closed(Message):
        """The user wants the other panes back."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.mode: Mode = "lines"
        self.scope: Scope | None = None
        self.phase: str | None = None
        self._session: Session | None = None
        self._rest_until_s = 0.0
        self._known: tuple[object, ...] | None = None  # for which the profile holds
        self._profile: Profile | None = None
        self._forget()

    def _forget(self) -> None:
        """Other samples: cursor, folding and zoom begin anew."""
        cursor = TreeCursor()
        self.lines_view = LinesView()
        self.tree_view = TreeView(cursor)
        self.icicle_view = IcicleView(cursor)

    def open(self, mode: Mode, row: ThreadRow | None, session: Session) -> None:
        """Show a view of a thread's samples; without one, of those shown last, at first the training thread's."""
        scope = _scope(row, session)
        if self.scope is None or (row is not None and (row.pid, row.tid) != (self.scope.pid, self.scope.tid)):
            self.scope = scope
            self._forget()
        self.mode = mode
        if row is None and self.picture is not None:  # another view of the same samples, also while paused
            self.redraw(force=True)
        else:
            self.refresh_from(session)

    def refresh_from(self, session: Session) -> None:
        """Take the samples of the scope now."""
        self.picture = self.collect(session, ())
        self.redraw(force=True)

    def take(self, session: Session, findings: Sequence[Finding]) -> None:
        """Nothing is computed for a pane that is not open."""
        self._session = session
        if self.display and self.scope is not None and time.monotonic() >= self._rest_until_s:
            began_s = time.thread_time()
            super().take(session, findings)
            self._rest(began_s)

    def _rest(self, began_s: float) -> None:
        """What took long is done rarely: at most a few percent of a core go into it."""
        cost_s = time.thread_time() - began_s
        if cost_s > REST_ABOVE_S:
            self._rest_until_s = max(self._rest_until_s, time.monotonic() + REST_FACTOR * cost_s)

    def collect(self, session: Session, findings: Sequence[Finding]) -> ProfilePicture:
        """The samples of the scope; the same profile as before unless new ones came."""
        self._session = session
        scope = self.scope or _scope(None, session)
        known = (scope, newest(session, scope))
        if self._profile is None or known != self._known:
            self._known = known
            self._profile = Profile(scope.samples(session), session.frames)
        process = session.process(scope.pid)
        alike = same_role(session.threads(), scope) if scope.extent == "role" else 0
        return ProfilePicture(self._profile, who_text(scope, alike), bool(process and process.gpu_uuids))

    def draw(self, picture: ProfilePicture, width: int, height: int) -> list[Line]:
        """Tabs, phases, and the view that is chosen."""
        profile = picture.profile
        above = [tabs_line(self.mode, picture.who, profile.samples, width)]
        if profile.has_phases or self.phase is not None:
            above.append(phases_line(profile, self.phase, width))
        if profile.ranges:
            above.append(ranges_line(profile, self.phase, width))
        above.append(())
        room = max(height - len(above), 1)
        return [*above, *self._view(picture, width, room)][:height]

    def _view(self, picture: ProfilePicture, width: int, height: int) -> list[Line]:
        profile = picture.profile
        if not profile.count(self.phase):
            return empty_lines(profile, self.phase)
        began_s = time.thread_time()
        lines = self._draw_view(picture, width, height)
        self._rest(began_s)
        return lines

    def _draw_view(self, picture: ProfilePicture, width: int, height: int) -> list[Line]:
        profile = picture.profile
        match self.mode:
            case "lines":
                return self.lines_view.draw(profile, self.phase, width, height, on_gpu=picture.on_gpu)
            case "tree":
                return self.tree_view.draw(profile, self.phase, width, height)
            case "icicle":
                return self.icicle_view.draw(profile, self.phase, width, height)

    def heading(self, picture: ProfilePicture) -> tuple[Span, ...]:
        """What this is, and how to leave it."""
        every = " · every line by itself" if self.mode == "lines" and self.lines_view.libraries else ""
        return (Span("Where the time goes", "text bold"), Span(f" · last 30 s{every} · Esc closes", "dim"))

    # -- keys

    def action_move(self, rows_down: int) -> None:
        """Move the cursor."""
        match self.mode:
            case "lines":
                self.lines_view.move(rows_down)
            case "tree":
                self.tree_view.move(rows_down)
            case "icicle":
                self.icicle_view.move(rows_down)
        self.redraw(force=True)

    def action_sideways(self, step: int) -> None:
        """The next phase; fold and unfold; the neighbour in the row."""
        match self.mode:
            case "lines":
                self._next_phase(step)
            case "tree":
                self.tree_view.unfold() if step > 0 else self.tree_view.fold()
            case "icicle":
                self.icicle_view.sideways(step)
        self.redraw(force=True)

    def action_enter(self) -> None:
        """A line in the tree; fold or unfold; zoom in."""
        match self.mode:
            case "lines":
                self._to_tree()
            case "tree":
                self.tree_view.toggle()
            case "icicle":
                self.icicle_view.zoom_in()
        self.redraw(force=True)

    def action_zoom_out(self) -> None:
        """One step out of the icicle's zoom."""
        if self.mode == "icicle":
            self.icicle_view.zoom_out()
            self.redraw(force=True)

    def action_back(self) -> None:
        """Out of the zoom; then back to the panes."""
        if self.mode == "icicle" and self.icicle_view.zoom_out():
            self.redraw(force=True)
        else:
            self.post_message(self.Closed())

    def action_phase(self, step: int) -> None:
        """Only the samples of the next phase, or user range."""
        self._next_phase(step)
        self.redraw(force=True)

    def action_extent(self) -> None:
        """This thread, all of its role, its process, the whole run."""
        if self.scope is None or self._session is None:
            return
        following = EXTENTS[(EXTENTS.index(self.scope.extent) + 1) % len(EXTENTS)]
        if following == "role" and same_role(self._session.threads(), self.scope) < 2:
            following = "process"
        if following == "run" and len(self._session.processes()) < 2:
            following = "thread"
        self.scope = self.scope._replace(extent=following)
        self._forget()
        self.refresh_from(self._session)

    def action_libraries(self) -> None:
        """Every line by itself, or a library's time with the line that called it."""
        self.lines_view.libraries = not self.lines_view.libraries
        self.redraw(force=True)

    def action_sort(self) -> None:
        """Sort the lines by their own or their total share."""
        self.lines_view.sort = (self.lines_view.sort + 1) % len(SORTS)
        self.redraw(force=True)

    def _next_phase(self, step: int) -> None:
        choices = filters(self.picture.profile) if self.picture is not None else FILTERS
        at = choices.index(self.phase) if self.phase in choices else 0  # a range may have left the last 30 s
        self.phase = choices[(at + step) % len(choices)]
        cursor = TreeCursor()
        self.tree_view, self.icicle_view = TreeView(cursor), IcicleView(cursor)

    def _to_tree(self) -> None:
        row = self.lines_view.selected()
        if row is None or self.picture is None:
            return
        node = node_of_line(self.picture.profile.tree(self.phase), row)
        self.mode = "tree"
        if node is not None:
            self.tree_view.cursor.show(node)

    # -- the mouse

    def on_click(self, event: Click) -> None:
        """A click selects; a second one does what Enter does."""
        offset = event.get_content_offset_capture(self)
        y = int(offset.y) - self._above()
        views: dict[Mode, LinesView | TreeView | IcicleView] = {
            "lines": self.lines_view, "tree": self.tree_view, "icicle": self.icicle_view
        }  # fmt: skip
        if views[self.mode].click(int(offset.x), y):
            self.action_enter()
        self.redraw(force=True)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The wheel moves the cursor."""
        self.action_move(3 if self.mode != "icicle" else 1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """The wheel moves the cursor."""
        self.action_move(-3 if self.mode != "icicle" else -1)

    def _above(self) -> int:
        if self.picture is None:
            return 2
        profile = self.picture.profile
        return 2 + (profile.has_phases or self.phase is not None) + bool(profile.ranges)


def _scope(row: ThreadRow | None, session: Session) -> Scope:
    if row is not None:
        return Scope(row.pid, row.tid, row.role or row.name)
    pid = session.trainer() or 0
    return Scope(pid, pid, "main")
