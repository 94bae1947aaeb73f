"""The page of a rule as lines: for the screen, for a terminal, and as plain text."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import IO

from tuimon.diagnosis.explain.page import Page
from tuimon.views.explain import CodeBlock, Heading, ListItem, PagePart, Paragraph, code_tokens, page_parts
from tuimon.views.finding_text import rule_title
from tuimon.views.format import MAX_WIDTH, WIDTH
from tuimon.views.tui.drawing.lines import Line, hanging, line, paragraph

#: Kind of a token -> role; role -> colour of a terminal.
_ROLES = {"comment": "dim", "keyword": "backward", "string": "optimizer", "number": "data", "name": "forward"}
_ANSI = {
    **{"strong": "1", "dim": "2", "key": "36", "warning badge": "33;7", "benign badge": "32;7"},
    **{"backward": "35", "optimizer": "32", "data": "33", "forward": "34"},
}


def page_lines(page: Page, width: int) -> list[Line]:
    """The page without its title, wrapped; a blank line above each part, but not below a heading nor within a list."""
    rows: list[Line] = []
    before: PagePart | None = None
    for part in page_parts(page):
        if rows and not (isinstance(before, Heading) or (isinstance(part, ListItem) and isinstance(before, ListItem))):
            rows.append(())
        before = part
        match part:
            case Heading(text):
                rows.append(line((text, "strong")))
            case Paragraph(text):
                rows += paragraph(text, width, "text", indent=1)
            case ListItem(name, text):
                rows += hanging(line(" ", (f"{name}  " if name else "· ", "key")), text, width)
            case CodeBlock():
                mark = "benign" if part.label == "after" else "warning"
                rows.append(line(" ", (f" {part.label} ", f"{mark} badge")))
                for tokens in code_tokens(part.code, part.language):
                    rows.append(line(("  ▏ ", mark), *((code, _ROLES.get(kind, "text")) for code, kind in tokens)))
    return rows


def write_pages(pages: Iterable[Page], file: IO[str], end: str = "") -> None:
    """Write pages, a blank line between them, and ``end``; through a pager on a terminal. Raises OSError."""
    if not file.isatty():
        file.write("\n".join(plain_page(page) for page in pages) + end)
        return
    import pydoc  # noqa: PLC0415  (only here: $PAGER, else less, or plain where there is none)

    os.environ.setdefault("LESS", "FRX")  # show colours; do not page what fits on one screen
    width = min(MAX_WIDTH, shutil.get_terminal_size().columns)
    pydoc.pager("\n".join(plain_page(page, width, coloured="NO_COLOR" not in os.environ) for page in pages) + end)


def plain_page(page: Page, width: int = WIDTH, *, coloured: bool = False) -> str:
    """A page as lines of text; code has no mark in front of it, so that it can be copied."""
    title = line((f"{rule_title(page.rule)}  {page.title}", "strong"))
    return "".join(
        "".join(
            f"\x1b[{_ANSI[role]}m{text}\x1b[0m" if coloured and role in _ANSI else text.replace("▏", " ")
            for text, role, _ in row
        ).rstrip()
        + "\n"
        for row in (title, (), *page_lines(page, width))
    )
