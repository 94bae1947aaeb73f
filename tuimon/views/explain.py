"""The page of a rule: its parts in the reading order of all views; as text, and as HTML that opens without a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from tuimon.diagnosis.explain.page import Page, page_of
from tuimon.views.format import count

if TYPE_CHECKING:
    from markupsafe import Markup  # comes with jinja2

#: A web address, without the punctuation that ends the sentence around it.
_ADDRESS = re.compile(r"https://[^\s()]+[^\s().,;:]")
#: Beginning of a token type's name -> kind of the token; the first that fits counts.
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


class ListItem(NamedTuple):
    """A row of a list; ``name`` may be empty."""

    name: str
    text: str


class CodeBlock(NamedTuple):
    """Code with its label."""

    label: str
    language: str
    code: str


PagePart = Heading | Paragraph | ListItem | CodeBlock


def page_parts(page: Page) -> Iterator[PagePart]:
    """The page without its title."""
    yield Paragraph(page.meaning)
    yield Heading("What to do")
    yield Paragraph(page.advice)
    for pair in page.code:
        yield Paragraph(f"{pair.title} ({pair.cause}):" if pair.cause else f"{pair.title}:")
        yield CodeBlock("before", pair.language, pair.before)
        yield CodeBlock("after", pair.language, pair.after)
    if page.no_code is not None:
        yield Paragraph(page.no_code)
    if page.causes:
        yield Heading("Causes")
    for name, text in page.causes.items():
        yield ListItem(name, text)
    yield Heading("How sure it is")
    yield Paragraph(page.sureness)
    yield Paragraph(f"It gives no verdict if one of these is missing: {', '.join(page.needs)}.")
    yield Heading("When it is wrong")
    yield from (ListItem("", text) for text in page.wrong_when)
    if page.thresholds:
        yield Heading("Thresholds")
    for limit in page.thresholds:
        value = count(round(limit.value)) if limit.value >= 1000 else f"{limit.value:g}"
        yield ListItem(value, f"{limit.meaning} ({limit.source})")
    yield Heading("Read more")
    yield from (ListItem("", f"{link.text}: {link.url}") for link in page.links)


def code_tokens(code: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """The lines of code, each as pairs (text, kind): comment, keyword, string, number, name, or nothing."""
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  (saves milliseconds at the screen's start)

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


@cache
def page_html(rule: str, cause: str | None = None) -> Markup:
    """A ``details`` element, with the code for this cause."""
    from markupsafe import Markup  # noqa: PLC0415

    body = ""
    for kind, group in groupby(page_parts(page_of(rule, cause)), key=type):
        rows = "".join(map(_element, group))
        body += f"<ul>{rows}</ul>" if kind is ListItem else rows
    summary = f"<summary>What this means, how sure it is, what to do: {escape(page_of(rule).title)}</summary>"
    return Markup(f'<details class="explain">{summary}{body}</details>')


def _element(part: PagePart) -> str:
    match part:
        case Heading(text):
            return f"<h4>{escape(text)}</h4>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case ListItem(name, text):
            head = f"<b>{escape(name)}</b>: " if name else ""
            linked = _ADDRESS.sub(r'<a href="\g<0>">\g<0></a>', escape(text))
            return f"<li>{head}{linked}</li>"
        case CodeBlock(label, language, code):
            lines = "\n".join(
                "".join(f'<i class="{kind}">{escape(text)}</i>' if kind else escape(text) for text, kind in row)
                for row in code_tokens(code, language)
            )
            return f'<p class="pair {label}">{label}</p><pre tabindex="0">{lines}</pre>'
