"""The page that explains a rule: one content for the terminal, the screen, the HTML report and programs."""

from __future__ import annotations

from functools import cache

import msgspec

from tuimon.diagnosis.explain.written import Code, Link, Written, written
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rulebook import BY_NAME, RULES
from tuimon.diagnosis.threshold import Threshold

#: The schema of ``explain --format json``.
EXPLAIN_SCHEMA = 1


class Limit(msgspec.Struct, frozen=True):
    """A number that decides the verdict, what it limits, and where it comes from."""

    value: float
    meaning: str
    source: str


class Page(msgspec.Struct, frozen=True):
    """All about one rule; texts are plain sentences, names in backquotes, ``wrong_when`` and ``causes`` in order."""

    rule: str
    title: str
    summary: str  # what it means and rests on, in one paragraph
    meaning: str  # in plain words
    sureness: str  # what of it is measured and what estimated
    needs: list[str]  # evidence that it abstains without
    thresholds: list[Limit]
    wrong_when: list[str]
    causes: dict[str, str]
    advice: str
    code: list[Code]  # pairs: the rule fires with the first and not with the second
    no_code: str | None  # why there is no pair
    links: list[Link]


class Explained(msgspec.Struct, frozen=True):
    """The object of ``explain --format json``."""

    pages: list[Page]
    schema: int = EXPLAIN_SCHEMA


def page_of(name: str, cause: str | None = None) -> Page:
    """The page of a rule; for a cause with the code of that alone, if it has any. Raises KeyError for no rule."""
    page = _page(BY_NAME[name])
    own = [code for code in page.code if code.cause == cause]
    return msgspec.structs.replace(page, code=own) if cause is not None and own else page


def cause_named(rule: str, name: str) -> str | None:
    """The cause of a rule that a user's word names, as in ``no_workers`` or ``INPUT-BOUND/no-workers``; else None."""
    word = name.strip().lower().replace("-", "_").rpartition("/")[2]
    return word if word in BY_NAME[rule].causes else None


def all_pages() -> list[Page]:
    """The pages of all rules, in their order."""
    return [_page(rule) for rule in RULES]


@cache
def _page(rule: Rule) -> Page:
    family = rule.judge.__module__.partition(".rules.")[2].replace(".", "/")
    text: Written = written(family)[rule.name]
    return Page(
        rule=rule.name,
        title=rule.title,
        summary=rule.explanation,
        meaning=text.meaning,
        sureness=text.sureness,
        needs=[need.what for need in rule.needs],
        thresholds=list(dict.fromkeys(map(_limit, rule.thresholds))),
        wrong_when=text.wrong_when,
        causes=text.causes,
        advice=text.advice,
        code=text.code,
        no_code=text.no_code,
        links=text.links,
    )


def _limit(threshold: Threshold) -> Limit:
    return Limit(float(threshold), threshold.meaning, threshold.source)
