"""A pane: takes what it needs from the Session, draws it by a pure function, repaints only lines that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget

from tuimon.views.tui.drawing.glyphs import Glyphs, ascii_only, blocks_only
from tuimon.views.tui.drawing.lines import Line, Span, clip
from tuimon.views.tui.drawing.palette import style_of

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

Picture = TypeVar("Picture")


class Canvas(Widget):
    """Shows lines of spans through the Line API."""

    characters: ClassVar[Glyphs] = "braille"
    mono: ClassVar[bool] = False  # True: no colours

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._styles: dict[str, Style] = {}
        self._title: tuple[Span, ...] = ()

    def put(self, lines: Sequence[Line]) -> None:
        """Show these lines; only those that differ from what stands there are painted again."""
        width = self.content_size.width
        changed = [
            y
            for y in range(max(len(lines), len(self._lines)))
            if (lines[y] if y < len(lines) else None) != (self._lines[y] if y < len(self._lines) else None)
        ]
        self._lines = list(lines)
        for y in changed:
            self._strips.pop(y, None)
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def caption(self, *title: Span) -> None:
        """Set the text in the border; painted again only when it changed."""
        if title == self._title:
            return
        self._title = title
        colours = self.app.theme_variables
        parts = [Content.styled(self.glyphs(span.text), style_word(span.role, colours)) for span in title]
        self.border_title = Content("").join(parts)

    def glyphs(self, text: str) -> str:
        """``text`` as this terminal can show it."""
        if self.characters == "braille":
            return text
        return blocks_only(text) if self.characters == "blocks" else ascii_only(text)

    @property
    def lines(self) -> Sequence[Line]:
        """What is shown."""
        return self._lines

    def render_line(self, y: int) -> Strip:
        """One line of the content."""
        strip = self._strips.get(y)
        if strip is None or strip.cell_length != self.content_size.width:
            strip = self._strips[y] = self._strip(y)
        return strip

    def notify_style_update(self) -> None:
        """The theme changed: forget all colours."""
        super().notify_style_update()
        self._strips.clear()
        self._styles.clear()

    def on_mount(self) -> None:
        """Titles in borders hold colours of their own: they follow the theme."""
        self.app.theme_changed_signal.subscribe(self, self._recolour)

    def _recolour(self, _theme: Theme) -> None:
        title, self._title = self._title, ()
        self.caption(*title)

    def _strip(self, y: int) -> Strip:
        width = self.content_size.width
        spans = clip(self._lines[y], width) if y < len(self._lines) else ()
        segments = [Segment(self.glyphs(span.text), self._style(span.role)) for span in spans if span.text]
        return Strip(segments).adjust_cell_length(width, self._style(spans[-1].role if _fills(spans) else ""))

    def _style(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            style = self.rich_style + style_of(role, self.app.theme_variables, mono=self.mono)
            self._styles[role] = style
        return style


def style_word(role: str, variables: dict[str, str]) -> str:
    """A role as textual's own style text, for titles in borders."""
    style = style_of(role, variables)
    words = ["bold"] if style.bold else []
    if style.color:
        words.append(style.color.name)
    return " ".join(words)


def _fills(spans: Sequence[Span]) -> bool:
    """Whether the last span's background goes on to the right edge."""
    return bool(spans) and "cursor" in spans[-1].role


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
