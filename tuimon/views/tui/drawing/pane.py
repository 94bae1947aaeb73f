"""The base of all panes: collect a view state from the Session, draw it with a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from tuimon.views.tui.drawing.canvas import Canvas
from tuimon.views.tui.drawing.lines import Line, Span

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

State = TypeVar("State")


class Pane(Canvas, Generic[State], can_focus=True):
    """A bordered part of the screen with one noun in it.

    A subclass defines its view state (``collect``) and how it is drawn (``draw``). The state is kept, so that a paused
    pane can be resized and scrolled without newer data.
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.state: State | None = None
        self._drawn: tuple[object, ...] | None = None

    def collect(self, session: Session, findings: Sequence[Finding]) -> State:
        """The part of the session that this pane shows, as an immutable value."""
        raise NotImplementedError

    def draw(self, state: State, width: int, height: int) -> list[Line]:
        """The content's lines."""
        raise NotImplementedError

    def heading(self, state: State) -> tuple[Span, ...]:
        """The text in the border."""
        return ()

    def update_state(self, session: Session, findings: Sequence[Finding]) -> None:
        """Collect the state as it is now; ``redraw`` shows it."""
        self.state = self.collect(session, findings)

    def redraw(self, force: bool = False) -> None:
        """Draw the state collected last, if it or the size changed."""
        if self.state is None or not self.display:
            return
        width, height = self.content_size
        drawn = (self.state, width, height)
        if force or drawn != self._drawn:
            self._drawn = drawn
            self.set_title(*self.heading(self.state))
            if height:
                self.show_lines(self.draw(self.state, width, height))

    def on_focus(self) -> None:
        """Show the cursor."""
        self.redraw(force=True)

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.redraw(force=True)

    def fit(self) -> None:
        """The content follows the size."""
        self._strips.clear()
        self.redraw()
