"""Who reads what records bring and the session holds: noted while recorded runs are judged, reported and drawn.

The name of an attribute shows nothing, as structs share names. So each member of these classes is replaced, for a
while, by one that notes that code of the product beside the writers has read it. A field that is folded is read by the
fold; that its column is read is another member, noted by itself. Of what no recorded run comes to, the syntax of the
product must show an attribute of that name, or its name as a text.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tuimon.diagnosis.evidence
import tuimon.session
from tests.recorded_logs import log_path
from tests.views.metrics.figures import FINDINGS, whole_session
from tuimon import records
from tuimon.diagnosis.verdicts import fold
from tuimon.sources.log.source import read_records
from tuimon.views.export import Selection, speedscope, write_perfetto
from tuimon.views.metrics.prometheus import RankLabels, take
from tuimon.views.report.page import as_html, html_page

ROOT = Path(records.__file__).parent.parent
#: Those who write facts, or pass them on as they are.
WRITERS = ("records/", "sources/", "trace/", "launch/", "agent/")


class Member(NamedTuple):
    """A field, property or method of a class."""

    owner: type
    name: str

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"


class _Noting:
    """A member that notes its first reader beside the writers, and is then as it was."""

    def __init__(self, member: Member, before: Any, read: set[Member]) -> None:
        self.member, self.before, self.read = member, before, read

    def __get__(self, instance: object, owner: type) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith("<"):  # a template
            frame = frame.f_back
        file = frame.f_code.co_filename.removeprefix(f"{ROOT}{os.sep}")
        if not os.path.isabs(file) and not file.startswith(WRITERS):
            self.read.add(self.member)
            type.__setattr__(self.member.owner, self.member.name, self.before)
        return self.before.__get__(instance, owner)


class _NotingField(_Noting):
    def __set__(self, instance: object, value: object) -> None:
        self.before.__set__(instance, value)


def classes() -> list[type]:
    """Of records, of the session, of the evidence."""
    modules = []
    for package in (records, tuimon.session, tuimon.diagnosis.evidence):
        names = (found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
        modules += map(importlib.import_module, names)
    return [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
    ]


def members() -> Iterator[tuple[Member, Any]]:
    """All that may be read, with what stands in its class."""
    for owner in classes():
        for name, value in vars(owner).items():
            kind = type(value).__name__
            is_field = kind in ("member_descriptor", "_tuplegetter")
            is_query = isinstance(value, property | cached_property) or inspect.isfunction(value)
            if not name.startswith("_") and (is_field or is_query):
                yield Member(owner, name), value


@contextmanager
def noting() -> Iterator[set[Member]]:
    """The members that are read meanwhile."""
    read: set[Member] = set()
    noted = list(members())
    for member, before in noted:
        is_data = hasattr(type(before), "__set__")
        type.__setattr__(member.owner, member.name, (_NotingField if is_data else _Noting)(member, before, read))
    try:
        yield read
    finally:
        for member, before in noted:
            type.__setattr__(member.owner, member.name, before)


def show_the_rest() -> None:
    """Pages, metrics and exports, which the recorded runs' verdicts do without."""
    session = whole_session()
    take(session, FINDINGS, RankLabels())
    as_html([html_page(session, [], "log.jsonl")])
    for name in ("slow_rank", "h100_check_in_process"):
        log = list(read_records(str(log_path(name))))
        session, findings = fold(log)
        as_html([html_page(session, findings, name)])
        write_perfetto(log, io.StringIO())
        speedscope(log, Selection(), name, "tuimon")


_BY_POSITION = "read as one of all columns, by position"
#: Members that nobody reads by their name, and why they are there.
UNREAD = {
    "Header.schema": "read before its line is decoded",
    "Frame.branch": "keeps the position of the fields behind it, in logs of earlier versions",
    "Frame.inside": "keeps the position of the fields behind it, in logs of earlier versions",
    "Frame.packages": "keeps the position of the fields behind it, in logs of earlier versions",
    "Gpu.cost_ms": "read by its source, which queries a slow driver less often",
    "OptimizerFacts.package": "for the user's own analysis of the log: whose optimizer it is",
    **dict.fromkeys(
        ("Steps.timed", "Steps.min_ns", "Steps.median_ns", "Steps.p95_ns", "Stacks.rate_hz", "Cost.window_s"),
        "for the user's own analysis of the log: a window's figure without its histogram, or its sums",
    ),
    "TimedExchange.second": "the number by which ranks are compared: " + _BY_POSITION,
    "Filling.others": _BY_POSITION,
    "Rollout.copy": _BY_POSITION,
    **{
        f"SharedStep.{phase}_us": _BY_POSITION
        for phase in ("data", "forward", "backward", "optimizer", "other", "between")
    },
}


@cache
def names_read() -> frozenset[str]:
    """The attributes that code beside the writers reads, and its texts; the words of templates."""
    found: set[str] = set()
    for path in (*ROOT.rglob("*.py"), *ROOT.rglob("*.j2")):
        text = path.read_text()
        if path.suffix != ".py":
            found.update(re.findall(r"\w+", text))
        elif not str(path.relative_to(ROOT)).startswith(WRITERS):
            for each in ast.walk(ast.parse(text)):
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load):
                    found.add(each.attr)
                elif isinstance(each, ast.Constant):
                    found.add(str(each.value))
    return frozenset(found)


def not_noted(read: Set[Member]) -> list[Member]:
    """Members that nobody has read, and that have no reason not to be."""
    return [member for member, _ in members() if member not in read and str(member) not in UNREAD]


def without_reader(read: Set[Member]) -> list[str]:
    """Those of them whose names nobody reads at all."""
    return [str(member) for member in not_noted(read) if member.name not in names_read()]


def rows_of_nothing() -> set[str]:
    """Rows of the table for what is gone."""
    return UNREAD.keys() - {str(member) for member, _ in members()}
