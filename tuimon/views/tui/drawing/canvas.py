"""A widget that shows lines of spans and repaints only those that changed; and the base of all panes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, cast, get_args
from urllib.parse import quote

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.content import Content
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.style import Style as ContentStyle
from textual.widget import Widget

from tuimon.views.tui.drawing.lines import Line, Span, clip
from tuimon.views.tui.drawing.palette import style_of

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.records import Notice
    from tuimon.views.report.report import Parts

#: Characters that tuimon draws, and below each its ASCII stand-in.
_PLAIN = str.maketrans(
    "–·…→←×≥°±━╍┄─│┃└├▾▸▴●▏▎▍▌▋▊▉█░▔▁▂▃▄▅▆▇\u202f\u00a0",
    "-|~><x> +=+:-||`|*>^*  --==##:-..::||#  ",
)
Glyphs = Literal["braille", "blocks", "ascii"]
GLYPHS: tuple[Glyphs, ...] = get_args(Glyphs)
_NO_UNICODE_TERMS = ("linux", "dumb", "vt100", "vt102", "vt220")


def _braille(heights: str) -> dict[int, str]:
    """Braille cells by how high their dots reach, as one of five characters from empty to full."""
    rows = (0xC0, 0x24, 0x12, 0x09)  # dots of each row, from the bottom
    return {
        0x2800 + code: heights[max(height for height, row in enumerate(rows, 1) if code & row)]
        for code in range(1, 256)
    }


_TABLE = _PLAIN | _braille(" .:|#")
_BLOCKS = _braille(" ▂▄▆█")


def ascii_only(text: str) -> str:
    """``text`` with every non-ASCII character replaced; its width in cells stays."""
    if text.isascii():
        return text
    return "".join(
        char if char.isascii() else "?" * cell_len(char) for char in text.replace(" ±", "+-").translate(_TABLE)
    )


def glyphs_of(environ: Mapping[str, str], encoding: str) -> Glyphs:
    """The glyphs that a terminal can show: the value of ``TUIMON_GLYPHS``, else what its environment shows.

    ``LC_ALL`` is the user's explicit choice. Otherwise the stream's encoding decides and not ``LANG``: a container
    without any locale still shows on a UTF-8 terminal (and Python then uses UTF-8, PEP 538). The Linux console's
    fonts have no braille; of others it is assumed.
    """
    chosen = environ.get("TUIMON_GLYPHS", "")
    for known in GLYPHS:
        if chosen == known:
            return known
    is_utf8 = "utf8" in (environ.get("LC_ALL") or encoding).lower().replace("-", "")
    return "braille" if is_utf8 and environ.get("TERM", "") not in _NO_UNICODE_TERMS else "ascii"


class Terminal(NamedTuple):
    """The looks of an app: the glyphs of its terminal, whether it has no colours, whose files it may open, if any."""

    glyphs: Glyphs = "braille"
    is_mono: bool = False
    host: str | None = None

    def text(self, span: Span) -> str:
        """The characters that this terminal can show."""
        if self.glyphs == "braille":
            return span.text
        return span.text.translate(_BLOCKS) if self.glyphs == "blocks" else ascii_only(span.text)

    def link(self, span: Span) -> Style:
        """The link (OSC 8) to the line of code that a span names: ``file://host/path#line``; empty without one."""
        if span.at is None or self.host is None or not span.at[0].startswith("/"):
            return Style.null()
        file, line = span.at
        return Style(link=f"file://{quote(self.host)}{quote(file)}#{line}")


class Canvas(Widget):
    """Shows lines of spans through the Line API."""

    ALLOW_SELECT = False  # panes change every second; the text of sheets can be selected

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._styles: dict[str, Style] = {}
        self._title: tuple[Span, ...] = ()
        self._fitted = Size(0, 0)  # content size that the lines were last made for
        self._painted_whole = False  # while all lines are being painted anyway

    def fit(self) -> None:
        """Make the lines for the current size."""

    def on_resize(self) -> None:
        self.fit()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Make the lines before the first frame and after a resize: Textual's event comes after it has painted."""
        if self._fitted != self.content_size:
            self._fitted = self.content_size
            self._painted_whole = crop.size == self.size
            self.fit()
            self._painted_whole = False
        return super().render_lines(crop)

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Show these lines; only those that changed are painted again."""
        width = self.content_size.width
        changed = [
            y
            for y in range(max(len(lines), len(self._lines)))
            if (lines[y] if y < len(lines) else None) != (self._lines[y] if y < len(self._lines) else None)
        ]
        self._lines = list(lines)
        for y in changed:
            self._strips.pop(y, None)
        if changed and not self._painted_whole:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def set_title(self, *title: Span) -> None:
        """Set the text in the border; painted again only when it changed."""
        if title == self._title:
            return
        self._title = title
        self.border_title = content_of([title], self.app)

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None or strip.cell_length != self.content_size.width:
            width = self.content_size.width
            spans = clip(self._lines[y], width) if y < len(self._lines) else ()
            shown = terminal_of(self.app)
            segments = [
                Segment(shown.text(span), self._style(span.role) + shown.link(span)) for span in spans if span.text
            ]
            fills = bool(spans) and "cursor" in spans[-1].role  # its background goes on to the right edge
            strip = Strip(segments).adjust_cell_length(width, self._style(spans[-1].role if fills else ""))
            self._strips[y] = strip
        return strip

    def notify_style_update(self) -> None:
        """The theme changed: forget all colours; the title in the border has its own."""
        super().notify_style_update()
        self._strips.clear()
        self._styles.clear()
        title, self._title = self._title, ()
        self.set_title(*title)

    def _style(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            style = self.rich_style + style_of(role, self.app.theme_variables, mono=terminal_of(self.app).is_mono)
            self._styles[role] = style
        return style


def terminal_of(app: App[Any]) -> Terminal:  # Any: whatever the app returns
    """The looks of a tuimon app."""
    looks: Terminal = cast(Any, app).terminal  # of a TerminalApp, on which drawing does not depend
    return looks


def content_of(lines: Sequence[Line], app: App[Any]) -> Content:  # Any: whatever the app returns
    """Lines as Textual's own widgets and titles show them, one below the other."""
    shown, variables = terminal_of(app), app.theme_variables
    looks = {(span.role, span.at): span for row in lines for span in row}
    styles = {
        look: ContentStyle.from_rich_style(style_of(span.role, variables, mono=shown.is_mono) + shown.link(span))
        for look, span in looks.items()
    }
    rows = [Content.assemble(*((shown.text(span), styles[span.role, span.at]) for span in row)) for row in lines]
    return Content("\n").join(rows)


State = TypeVar("State")


class Pane(Canvas, Generic[State], can_focus=True):
    """A bordered part of the screen about one thing.

    A subclass defines its view state (``collect``) and how it is drawn (``draw``). The state is kept, so that a paused
    pane can be resized and scrolled without newer data.
    """

    #: The sources whose notices it shows; what any other source reports is shown in a corner of the screen.
    sources: ClassVar[tuple[str, ...]] = ()

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.state: State | None = None
        self._drawn: tuple[object, ...] | None = None

    def collect(self, now: Parts, findings: Sequence[Finding]) -> State:
        """The part of the report that this pane shows, as an immutable value."""
        raise NotImplementedError

    def draw(self, state: State, width: int, height: int) -> list[Line]:
        """The content's lines."""
        raise NotImplementedError

    def rows_wanted(self, width: int, most: int) -> int:
        """Rows of content that it could fill well in this width, if possible at most ``most``; 0: it is only a line."""
        return 8

    def heading(self, state: State) -> tuple[Span, ...]:
        """The text in the border."""
        return ()

    def notices(self, now: Parts) -> list[Notice]:
        """The notices that it shows, in the order of its sources."""
        known = now.session.notices
        return [known[source] for source in self.sources if source in known]

    def update_state(self, now: Parts, findings: Sequence[Finding]) -> None:
        """Collect the state as it is now; ``redraw`` shows it."""
        self.state = self.collect(now, findings)

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

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Show or hide the cursor."""
        super().watch_has_focus(_has_focus)
        self.redraw(force=True)

    def fit(self) -> None:
        """The content follows the size."""
        self._strips.clear()
        self.redraw()
