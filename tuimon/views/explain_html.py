"""The page of a rule as a piece of HTML that opens by itself, without a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from tuimon.diagnosis.explain.page import Page, page_of
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.views.explain_parts import Block, Heading, Item, Paragraph, code_tokens, parts_of

if TYPE_CHECKING:
    from markupsafe import Markup  # comes with jinja2, an extra


#: Without what ends the sentence around it.
_ADDRESS = re.compile(r"https://[^\s()]+[^\s().,;:]")


@cache
def page_html(rule: str, cause: str | None = None) -> Markup:
    """A ``details`` element, with the code for this cause; empty for a rule that this version does not know."""
    from markupsafe import Markup  # noqa: PLC0415

    if rule not in BY_NAME:
        return Markup("")
    body = "".join(_elements(page_of(rule, cause)))
    summary = f"<summary>What this means, how sure it is, what to do: {escape(page_of(rule).title)}</summary>"
    return Markup(f'<details class="explain">{summary}{body}</details>')


def _elements(page: Page) -> Iterator[str]:
    for kind, group in groupby(parts_of(page), key=type):
        rows = "".join(_element(part) for part in group)
        yield f"<ul>{rows}</ul>" if kind is Item else rows


def _element(part: Heading | Paragraph | Item | Block) -> str:
    match part:
        case Heading(text):
            return f"<h4>{escape(text)}</h4>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Item(name, text):
            head = f"<b>{escape(name)}</b>: " if name else ""
            return f"<li>{head}{_linked(text)}</li>"
        case Block(label, language, code):
            lines = "\n".join("".join(_token(*token) for token in row) for row in code_tokens(code, language))
            return f'<p class="pair {label}">{label}</p><pre tabindex="0">{lines}</pre>'


def _token(text: str, kind: str) -> str:
    return f'<i class="{kind}">{escape(text)}</i>' if kind else escape(text)


def _linked(text: str) -> str:
    """Addresses as links."""
    return _ADDRESS.sub(r'<a href="\g<0>">\g<0></a>', escape(text))
