"""All pairs of all pages, and the judgement of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from tuimon.diagnosis.explain.page import all_pages
from tuimon.diagnosis.explain.written import Code
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.reading import fold
from tuimon.records import Record

When = Literal["before", "after"]


class Pair(NamedTuple):
    """One pair of a page, and its number there."""

    rule: str
    number: int
    code: Code

    @property
    def name(self) -> str:
        """As its program is called."""
        return f"{self.rule}_{self.number}"

    def text(self, when: When) -> str:
        """The code."""
        return self.code.before if when == "before" else self.code.after

    def finding(self, records: Iterable[Record]) -> Finding | None:
        """What the rule finds over the whole run, with the pair's cause where it names one."""
        _, findings = fold(records)
        return next((f for f in findings if f.rule == self.rule and self.code.cause in (None, f.cause)), None)


def all_pairs() -> list[Pair]:
    """In the order of the pages."""
    return [Pair(page.rule, number, code) for page in all_pages() for number, code in enumerate(page.code)]
