"""Pages as text: with colours on a terminal that has them, plain in a pipe."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import IO

from tuimon.diagnosis.explain.page import Page
from tuimon.views.explain_parts import Block, Heading, Item, Paragraph, parts_of
from tuimon.views.finding_text import rule_title
from tuimon.views.wrapping import wrap

_WIDTH = 78  # in a pipe, as of the report
_MOST = 100  # longer lines are hard to read


def write_pages(pages: Iterable[Page], file: IO[str], end: str = "") -> None:
    """Write pages, a blank line between them, and ``end``; through a pager on a terminal. Raises OSError."""
    if file.isatty():
        _show_paged(_coloured(pages) + end)
        return
    file.write("\n".join(plain_page(page) for page in pages) + end)


def _show_paged(text: str) -> None:
    """Show it by $PAGER, else by less, or write it where there is none. The terminal is that of stdout."""
    import pydoc  # noqa: PLC0415  (only here)

    os.environ.setdefault("LESS", "FRX")  # colours; no pages for what fits on one
    pydoc.pager(text)


def plain_page(page: Page, width: int = _WIDTH) -> str:
    """A page as lines of text."""
    return "\n".join(text for _, text in _lines(page, width)) + "\n"


def _coloured(pages: Iterable[Page]) -> str:
    from rich.console import Console  # noqa: PLC0415  (the command also answers in pipes, without it)
    from rich.syntax import Syntax  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    file = io.StringIO()
    console = Console(file=file, force_terminal=True, highlight=False, soft_wrap=True)  # it heeds NO_COLOR and TERM
    for number, page in enumerate(pages):
        if number:
            console.print()
        for part, text in _lines(page, min(_MOST, shutil.get_terminal_size().columns)):
            if isinstance(part, Block) and text and text.startswith("    "):
                # the terminal's own colours: they fit its background
                code = Syntax("", part.language, theme="ansi_dark", background_color="default").highlight(text)
                code.rstrip()
                console.print(code)
            else:
                console.print(Text(text, _STYLES.get(type(part), "")))
    return file.getvalue()


_STYLES: dict[type, str] = {Heading: "bold", str: "bold", Block: "dim"}


def _lines(page: Page, width: int) -> Iterator[tuple[object, str]]:
    """The rows of a page, each with the part it is of; the title's with its own text."""
    title = f"{rule_title(page.rule)}  {page.title}"
    yield title, title
    before: object = None
    for part in parts_of(page):
        if not (isinstance(part, Item) and isinstance(before, (Item, Heading))) and not isinstance(before, Heading):
            yield None, ""
        before = part
        match part:
            case Heading(text):
                yield part, text
            case Paragraph(text):
                yield from ((part, row) for row in _wrapped(text, width, "  "))
            case Item(name, text):
                head = f"  - {name}: " if name else "  - "
                yield from ((part, row) for row in _wrapped(head.lstrip() + text, width, "  ", "    "))
            case Block(label, _, code):
                yield part, f"  {label}:"
                yield from ((part, f"    {row}".rstrip()) for row in code.splitlines())


def _wrapped(text: str, width: int, indent: str, further: str | None = None) -> list[str]:
    return wrap(text, width, indent, indent if further is None else further)
