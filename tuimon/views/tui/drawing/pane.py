"""The base of all panes: collect a view state from the Session, draw it with a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from tuimon.views.tui.drawing.canvas import Canvas
from tuimon.views.tui.drawing.lines import Line, Span

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

Picture = TypeVar("Picture")


class Pane(Canvas, Generic[Picture], can_focus=True):
    """A bordered part of the screen with one noun in it.

    A subclass says what it takes (``collect``) and what that looks like (``draw``). What was collected is kept, so that
    a paused pane can be resized and scrolled without looking at newer data.
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.picture: Picture | None = None
        self._drawn: tuple[object, ...] | None = None

    def collect(self, session: Session, findings: Sequence[Finding]) -> Picture:
        """What this pane shows of the session, as an immutable value."""
        raise NotImplementedError

    def draw(self, picture: Picture, width: int, height: int) -> list[Line]:
        """The content's lines."""
        raise NotImplementedError

    def heading(self, picture: Picture) -> tuple[Span, ...]:
        """The text in the border."""
        return ()

    def take(self, session: Session, findings: Sequence[Finding]) -> None:
        """Take the current picture; ``redraw`` shows it."""
        self.picture = self.collect(session, findings)

    def redraw(self, force: bool = False) -> None:
        """Draw the picture taken last, if it or the size changed."""
        width, height = self.content_size
        if self.picture is None or not self.display or not height:
            return
        state = (self.picture, width, height)
        if force or state != self._drawn:
            self._drawn = state
            self.caption(*self.heading(self.picture))
            self.put(self.draw(self.picture, width, height))

    def on_resize(self) -> None:
        """The content follows the size."""
        self._strips.clear()
        self.redraw()
