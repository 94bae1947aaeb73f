"""The parts of a page in the reading order of all views; its code in tokens, for views that colour it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.diagnosis.explain.page import Limit, Page

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


class Block(NamedTuple):
    """Code, with what it is."""

    label: str
    language: str
    code: str


Part = Heading | Paragraph | Item | Block


def parts_of(page: Page) -> Iterator[Part]:
    """The page without its title."""
    yield Paragraph(page.meaning)
    for name, text in page.causes.items():
        yield Item(name, text)
    yield Heading("What to do")
    yield Paragraph(page.advice)
    for pair in page.code:
        yield Paragraph(f"{pair.title} ({pair.cause}):" if pair.cause else f"{pair.title}:")
        yield Block("before", pair.language, pair.before)
        yield Block("after", pair.language, pair.after)
    if page.no_code is not None:
        yield Paragraph(page.no_code)
    yield Heading("What it rests on")
    yield Paragraph(page.summary)
    yield Paragraph(f"It gives no verdict where one of these is missing: {', '.join(page.needs)}.")
    yield Heading("How sure it is")
    yield Paragraph(page.sureness)
    yield Heading("When it is wrong")
    yield from (Item("", text) for text in page.wrong_when)
    if page.thresholds:
        yield Heading("Thresholds")
    yield from (Item(_value(limit), f"{limit.meaning} ({limit.source})") for limit in page.thresholds)
    yield Heading("Read more")
    yield from (Item("", f"{link.text}: {link.url}") for link in page.links)


def _value(limit: Limit) -> str:
    return f"{limit.value:,.0f}".replace(",", " ") if limit.value >= 1000 else f"{limit.value:g}"


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
