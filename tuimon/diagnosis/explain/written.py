"""The written part of the pages: Markdown of a fixed shape, one file a family of rules.

``# rule`` begins a page with its meaning in plain words; ``## How sure``, ``## Wrong when``, ``## Causes``,
``## What to do``, ``## No code to change`` and ``## Links`` follow; ``### title (cause)`` is a pair of code blocks,
whose fences are marked ``before`` and ``after``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

import msgspec

_PAIR = re.compile(r"(?P<title>.*?)(?: \((?P<cause>\w+)\))?")
_FENCED = re.compile(r"```(?P<language>\w+) (?P<when>before|after)\n(?P<code>.*?)\n```", re.DOTALL)
_CAUSE = re.compile(r"`(?P<name>\w+)`: (?P<text>.*)")
_LINK = re.compile(r"(?P<text>.*): (?P<url>https://\S+)")


class Code(msgspec.Struct, frozen=True):
    """A change: the rule, with this cause where one is named, fires ``before`` and not ``after``."""

    title: str
    language: str
    before: str
    after: str
    cause: str | None = None


class Link(msgspec.Struct, frozen=True):
    """A link to further reading."""

    text: str
    url: str


class Written(msgspec.Struct, frozen=True):
    """The part of a page that is written by hand."""

    meaning: str
    sureness: str
    wrong_when: list[str]
    causes: dict[str, str]
    advice: str
    code: list[Code]
    no_code: str | None
    links: list[Link]


@cache
def written(family: str) -> dict[str, Written]:
    """The pages of a family, such as ``gpu/pace``, by rule.

    Raises KeyError where a part is missing, ValueError where a line is none.
    """
    text = (files(__package__) / "pages" / f"{family}.md").read_text(encoding="utf-8")
    return dict(map(_page, _parts(text, "# ")))


def _page(part: tuple[str, str]) -> tuple[str, Written]:
    name, body = part
    head, *rest = re.split(r"^(?=## )", body, flags=re.MULTILINE)
    sections = dict(_parts("".join(rest), "## "))
    advice, *pairs = re.split(r"^(?=### )", sections["What to do"], flags=re.MULTILINE)
    none = sections.get("No code to change")
    causes = [_matched(_CAUSE, item) for item in _items(sections.get("Causes", ""))]
    links = [_matched(_LINK, item) for item in _items(sections["Links"])]
    return name, Written(
        meaning=_flowing(head),
        sureness=_flowing(sections["How sure"]),
        wrong_when=list(_items(sections["Wrong when"])),
        causes={cause["name"]: cause["text"] for cause in causes},
        advice=_flowing(advice),
        code=[_pair(title, text) for title, text in _parts("".join(pairs), "### ")],
        no_code=_flowing(none) if none is not None else None,
        links=[Link(link["text"], link["url"]) for link in links],
    )


def _pair(title: str, text: str) -> Code:
    blocks = {block["when"]: block for block in _FENCED.finditer(text)}
    if rest := _flowing(_FENCED.sub("", text)):
        raise ValueError(f"text beside code is shown nowhere: {rest}")
    before, after, head = blocks["before"], blocks["after"], _matched(_PAIR, title)
    return Code(head["title"], before["language"], before["code"], after["code"], head["cause"])


def _parts(text: str, mark: str) -> Iterator[tuple[str, str]]:
    """The parts that begin with a heading of this level, as (heading, what follows); code is no heading."""
    name, lines, in_code = "", list[str](), False
    for line in text.splitlines(keepends=True):
        in_code ^= line.startswith("```")
        if line.startswith(mark) and not in_code:
            if name:
                yield name, "".join(lines)
            name, lines = line.removeprefix(mark).strip(), []
        else:
            lines.append(line)
    if name:
        yield name, "".join(lines)


def _items(text: str) -> Iterable[str]:
    items = re.split(r"^(?=- )", text.strip(), flags=re.MULTILINE)
    return (_flowing(item.removeprefix("- ")) for item in items if item)


def _flowing(text: str) -> str:
    """A paragraph on one line."""
    return " ".join(text.split())


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(f"not of the form {pattern.pattern}: {text}")
    return found
