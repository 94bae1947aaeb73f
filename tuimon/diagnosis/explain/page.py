"""The page that explains a rule: one content for the terminal, the screen, the HTML report and programs.

The written part is Markdown of a fixed shape, one file a family of rules in ``pages/``. ``# rule`` begins a page with
its meaning in plain words; ``## How sure``, ``## Wrong when``, ``## Causes``, ``## What to do``, ``## No code to
change`` and ``## Links`` follow; ``### title (cause)`` is a pair of code blocks, whose fences are marked ``before`` and
``after``.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from types import FunctionType

import msgspec

from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rulebook import BY_NAME, RULES
from tuimon.threshold import Threshold

_PAIR = re.compile(r"(?P<title>.*?)(?: \((?P<cause>\w+)\))?")
_FENCED = re.compile(r"```(?P<language>\w+) (?P<when>before|after)\n(?P<code>.*?)\n```", re.DOTALL)
_CAUSE = re.compile(r"`(?P<name>\w+)`: (?P<text>.*)")
#: The modules whose thresholds pages list, if a rule's code leads to them by name.
_RULE_MODULES = ("tuimon.diagnosis.rule", "tuimon.diagnosis.evidence")
_LINK = re.compile(r"(?P<text>.*): (?P<url>https://\S+)")


class Limit(msgspec.Struct, frozen=True):
    """A number that decides the verdict, with its meaning and its source."""

    value: float
    meaning: str
    source: str


class CodePair(msgspec.Struct, frozen=True):
    """A change of code: the rule (with this cause, if one is named) fires ``before`` it and not ``after`` it."""

    title: str
    language: str
    before: str
    after: str
    cause: str | None = None


class Link(msgspec.Struct, frozen=True):
    """A link to further reading."""

    text: str
    url: str


class Page(msgspec.Struct, frozen=True):
    """All about one rule; texts are plain sentences, names in backquotes, ``wrong_when`` and ``causes`` in order."""

    rule: str
    title: str
    meaning: str  # in plain words
    sureness: str  # the measured and the estimated parts of it
    needs: list[str]  # evidence that it abstains without
    thresholds: list[Limit]
    wrong_when: list[str]
    causes: dict[str, str]
    advice: str
    code: list[CodePair]  # pairs: the rule fires with the first and not with the second
    no_code: str | None  # why there is no pair
    links: list[Link]


class Explained(msgspec.Struct, frozen=True):
    """The object of ``explain --format json``."""

    pages: list[Page]
    schema: int = 1


def page_of(name: str, cause: str | None = None) -> Page:
    """The page of a rule, with the code of one cause alone if there is any. Raises KeyError for an unknown rule."""
    page = _page(BY_NAME[name])
    own = [code for code in page.code if code.cause == cause]
    return msgspec.structs.replace(page, code=own) if cause is not None and own else page


def all_pages() -> list[Page]:
    """The pages of all rules, in their order."""
    return [_page(rule) for rule in RULES]


@cache
def written(family: str) -> dict[str, dict[str, str]]:
    """The sections of a family of pages (``gpu/bottleneck``) by rule and heading; the meaning has an empty heading."""
    text = (files(__package__) / "pages" / f"{family}.md").read_text(encoding="utf-8")
    pages = {}
    for name, body in _parts(text, "# "):
        head, *sections = re.split(r"^(?=## )", body, flags=re.MULTILINE)
        pages[name] = {"": head, **dict(_parts("".join(sections), "## "))}
    return pages


@cache
def _page(rule: Rule) -> Page:
    family = rule.judge.__module__.partition(".rules.")[2].replace(".", "/")
    return page_with(rule, written(family)[rule.name])


def page_with(rule: Rule, sections: dict[str, str]) -> Page:
    """The page of a rule. Raises KeyError if a section is missing, ValueError if a line has the wrong form."""
    advice, *pairs = re.split(r"^(?=### )", sections["What to do"], flags=re.MULTILINE)
    causes = [_matched(_CAUSE, item) for item in _items(sections.get("Causes", ""))]
    links = [_matched(_LINK, item) for item in _items(sections["Links"])]
    limits = (Limit(float(each), each.meaning, each.source) for each in thresholds_of(rule))
    return Page(
        rule=rule.name,
        title=rule.title,
        meaning=_flowing(sections[""]),
        sureness=_flowing(sections["How sure"]),
        needs=[need.what for need in rule.needs],
        thresholds=list(dict.fromkeys(limits)),
        wrong_when=list(_items(sections["Wrong when"])),
        causes={cause["name"]: cause["text"] for cause in causes},
        advice=_flowing(advice),
        code=[_pair(title, text) for title, text in _parts("".join(pairs), "### ")],
        no_code=_flowing(sections["No code to change"]) if "No code to change" in sections else None,
        links=[Link(link["text"], link["url"]) for link in links],
    )


def thresholds_of(rule: Rule) -> Iterator[Threshold]:
    """The thresholds that a rule's code names, also through rules and evidence that it uses; then its needs'."""
    reached = [(each.__module__, each.__name__) for each in (rule.judge, rule.of_unclaimed) if each is not None]
    for module, reached_name in reached:
        nodes = ast.walk(_definitions(module)[reached_name]) if reached_name in _definitions(module) else ()
        for *_, used in sorted((each.lineno, each.col_offset, each.id) for each in nodes if isinstance(each, ast.Name)):
            value = getattr(sys.modules[module], used, None)
            if isinstance(value, Threshold):
                yield value
            rows = value if isinstance(value, list) else ()  # a table to which decorators add functions
            for function in (value, *(part for row in rows for part in row)):
                is_function = isinstance(function, FunctionType)
                home, name = (function.__module__, function.__name__) if is_function else (module, used)
                if (home, name) not in reached and home.startswith(_RULE_MODULES):
                    reached.append((home, name))
    for need in rule.needs:
        yield from need.thresholds


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """The functions, classes and constants of a module, by name."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
    return found


def _pair(title: str, text: str) -> CodePair:
    blocks = {block["when"]: block for block in _FENCED.finditer(text)}
    if rest := _flowing(_FENCED.sub("", text)):
        raise ValueError(f"text next to code is shown nowhere: {rest}")
    before, after, head = blocks["before"], blocks["after"], _matched(_PAIR, title)
    return CodePair(head["title"], before["language"], before["code"], after["code"], head["cause"])


def _parts(text: str, mark: str) -> Iterator[tuple[str, str]]:
    """The parts of a text under the headings of one level, as (heading, text); headings inside code do not count."""
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
    """A paragraph joined into one line."""
    return " ".join(text.split())


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(f"not of the form {pattern.pattern}: {text}")
    return found
