"""The page of a rule: its parts in the reading order of all views; as text, and as HTML that opens without a script."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from itertools import groupby
from typing import IO, TYPE_CHECKING, NamedTuple

from tuimon.diagnosis.explain.page import Page, page_of
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.views.finding_text import rule_title
from tuimon.views.format import count, wrap

if TYPE_CHECKING:
    from markupsafe import Markup  # comes with jinja2

_WIDTH = 78  # in a pipe, as of the report
_MOST = 100  # longer lines are hard to read
#: Without what ends the sentence around it.
_ADDRESS = re.compile(r"https://[^\s()]+[^\s().,;:]")
#: How the name of a token's type begins, and its kind: the first that fits.
_KINDS = (
    ("Token.Comment", "comment"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Keyword", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Class", "name"),
    ("Token.Name.Builtin", "name"),
)


class Heading(NamedTuple):
    """Begins a section."""

    text: str


class Paragraph(NamedTuple):
    """Flowing text."""

    text: str


class Item(NamedTuple):
    """A row of a list; ``name`` may be empty."""

    name: str
    text: str


class CodeBlock(NamedTuple):
    """Code, with what it is."""

    label: str
    language: str
    code: str


Part = Heading | Paragraph | Item | CodeBlock


def parts_of(page: Page) -> Iterator[Part]:
    """The page without its title."""
    yield Paragraph(page.meaning)
    for name, text in page.causes.items():
        yield Item(name, text)
    yield Heading("What to do")
    yield Paragraph(page.advice)
    for pair in page.code:
        yield Paragraph(f"{pair.title} ({pair.cause}):" if pair.cause else f"{pair.title}:")
        yield CodeBlock("before", pair.language, pair.before)
        yield CodeBlock("after", pair.language, pair.after)
    if page.no_code is not None:
        yield Paragraph(page.no_code)
    yield Heading("How sure it is")
    yield Paragraph(page.sureness)
    yield Paragraph(f"It gives no verdict where one of these is missing: {', '.join(page.needs)}.")
    yield Heading("When it is wrong")
    yield from (Item("", text) for text in page.wrong_when)
    if page.thresholds:
        yield Heading("Thresholds")
    for limit in page.thresholds:
        value = count(round(limit.value)) if limit.value >= 1000 else f"{limit.value:g}"
        yield Item(value, f"{limit.meaning} ({limit.source})")
    yield Heading("Read more")
    yield from (Item("", f"{link.text}: {link.url}") for link in page.links)


def spaced_parts(page: Page) -> Iterator[tuple[Part, bool]]:
    """The parts, each with whether a blank line stands above it: not below a heading, nor within a list."""
    before: Part | None = None
    for part in parts_of(page):
        yield part, not (isinstance(before, Heading) or (isinstance(part, Item) and isinstance(before, Item)))
        before = part


def code_tokens(code: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """The lines of code, each as pairs (text, kind): comment, keyword, string, number, name, or nothing."""
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  (milliseconds that the screen's start is spared)

    row: list[tuple[str, str]] = []
    for token, text in get_lexer_by_name(language).get_tokens(code):
        *whole, rest = text.split("\n")
        kind = next((kind for name, kind in _KINDS if str(token).startswith(name)), "")
        for piece in whole:
            yield [*row, (piece, kind)] if piece else row
            row = []
        if rest:
            row.append((rest, kind))
    if row:
        yield row


def write_pages(pages: Iterable[Page], file: IO[str], end: str = "") -> None:
    """Write pages, a blank line between them, and ``end``; through a pager on a terminal. Raises OSError."""
    if file.isatty():
        import pydoc  # noqa: PLC0415  (only here: $PAGER, else less, or plain where there is none)

        os.environ.setdefault("LESS", "FRX")  # colours; no pages for what fits on one
        pydoc.pager(_coloured(pages) + end)
        return
    file.write("\n".join(plain_page(page) for page in pages) + end)


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
            if isinstance(part, CodeBlock) and text and text.startswith("    "):
                # the terminal's own colours: they fit its background
                code = Syntax("", part.language, theme="ansi_dark", background_color="default").highlight(text)
                code.rstrip()
                console.print(code)
            else:
                console.print(Text(text, _STYLES.get(type(part), "")))
    return file.getvalue()


_STYLES: dict[type, str] = {Heading: "bold", str: "bold", CodeBlock: "dim"}


def _lines(page: Page, width: int) -> Iterator[tuple[object, str]]:
    """The rows of a page, each with the part it is of; the title's with its own text."""
    title = f"{rule_title(page.rule)}  {page.title}"
    yield title, title
    for part, is_apart in spaced_parts(page):
        if is_apart:
            yield None, ""
        match part:
            case Heading(text):
                yield part, text
            case Paragraph(text):
                yield from ((part, row) for row in wrap(text, width, "  ", "  "))
            case Item(name, text):
                head = f"  - {name}: " if name else "  - "
                yield from ((part, row) for row in wrap(head.lstrip() + text, width, "  ", "    "))
            case CodeBlock(label, _, code):
                yield part, f"  {label}:"
                yield from ((part, f"    {row}".rstrip()) for row in code.splitlines())


@cache
def page_html(rule: str, cause: str | None = None) -> Markup:
    """A ``details`` element, with the code for this cause; empty for a rule that this version does not know."""
    from markupsafe import Markup  # noqa: PLC0415

    if rule not in BY_NAME:
        return Markup("")
    body = ""
    for kind, group in groupby(parts_of(page_of(rule, cause)), key=type):
        rows = "".join(map(_element, group))
        body += f"<ul>{rows}</ul>" if kind is Item else rows
    summary = f"<summary>What this means, how sure it is, what to do: {escape(page_of(rule).title)}</summary>"
    return Markup(f'<details class="explain">{summary}{body}</details>')


def _element(part: Part) -> str:
    match part:
        case Heading(text):
            return f"<h4>{escape(text)}</h4>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Item(name, text):
            head = f"<b>{escape(name)}</b>: " if name else ""
            linked = _ADDRESS.sub(r'<a href="\g<0>">\g<0></a>', escape(text))
            return f"<li>{head}{linked}</li>"
        case CodeBlock(label, language, code):
            lines = "\n".join(
                "".join(f'<i class="{kind}">{escape(text)}</i>' if kind else escape(text) for text, kind in row)
                for row in code_tokens(code, language)
            )
            return f'<p class="pair {label}">{label}</p><pre tabindex="0">{lines}</pre>'
