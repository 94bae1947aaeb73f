"""Who reads what records bring and the session holds: noted while recorded runs are judged, reported and drawn.

The name of an attribute shows nothing, as structs share names. So each member of these classes is replaced, for a
while, by one that notes that code of the product beside the writers has read it. A field that is folded is read by the
fold; that its column is read is another member, noted by itself. What no recorded run comes to has a row in
``READ_IN``: the syntax of that file must show an attribute of that name, or its name as a text.
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
from tuimon.sources.log.source import read_log
from tuimon.views.export import Selection, speedscope, write_perfetto
from tuimon.views.metrics.snapshot import RankLabels, take
from tuimon.views.report.page import as_html
from tuimon.views.report.report import page_of

ROOT = Path(records.__file__).parent
#: Those who write facts, or pass them on as they are.
WRITERS = ("records.py", "sources/", "trace/", "launch/", "agent/")


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
    modules = [records]
    for package in (tuimon.session, tuimon.diagnosis.evidence):
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
    as_html([page_of(session, [], "log.jsonl")])
    for name in ("slow_rank", "h100_check_in_process"):
        log = list(read_log(str(log_path(name))))
        session, findings = fold(log)
        as_html([page_of(session, findings, name)])
        write_perfetto(log, io.StringIO())
        speedscope(log, Selection(), name, "tuimon")


#: Where those members are read that no recorded run comes to, by class.
READ_IN = {
    "Call": "views/tui/profile/views.py",
    "CallTree": "views/tui/profile/views.py",
    "Checkpoints": "views/comparison/compare.py",
    "Collectives": "session/standing.py",
    "Compiler": "session/stacks/set_up.py session/series.py",
    "CompilerEvents": "session/stacks/set_up.py diagnosis/rules/interpreter.py",
    "CompilerStats": "session/session.py session/tables.py",
    "CoresTaken": "diagnosis/rules/cores.py",
    "DataEvidence": "views/comparison/runs.py",
    "Exit": "records.py",
    "Filling": "diagnosis/rules/memory.py",
    "Gpu": "sources/gpus/source.py",
    "GpuExchange": "diagnosis/evidence/ranks.py",
    "Gone": "diagnosis/rules/course.py",
    "GpuTimeRow": "views/tui/panes/phases_pane.py",
    "Header": "sources/log/source.py",
    "LeadRow": "views/report/report.html.j2",
    "LineShare": "views/tui/profile/views.py views/tui/profile/profile_pane.py",
    "LineTable": "views/tui/profile/views.py",
    "LoaderRow": "diagnosis/evidence/data.py diagnosis/rules/input.py diagnosis/rules/memory.py",
    "Machine": "diagnosis/rules/cores.py diagnosis/rules/memory.py",
    "Mark": "views/export.py",
    "MeasuredBatches": "session/progress.py diagnosis/rules/input.py diagnosis/rules/model.py"
    " diagnosis/rules/gpu/waits.py",
    "MemoryHistory": "views/words.py views/tui/sheets/memory_sheet.py",
    "NativeUse": "views/tui/panes/threads_pane.py native_code.py",
    "Node": "session/machines.py views/words.py",
    "OptimizerFacts": "diagnosis/rules/compute.py views/tui/panes/gpu_figures.py",
    "PlacedProcess": "session/machines.py",
    "Placement": "diagnosis/rules/gpu/devices.py",
    "Pool": "diagnosis/cells.py diagnosis/rules/input.py",
    "Printed": "views/words.py",
    "Process": "session/progress.py diagnosis/evidence/run.py diagnosis/rules/model.py diagnosis/rules/advice.py",
    "ProcessStacks": "session/tables.py",
    "RangeJoin": "session/stacks/phases.py session/stacks/process.py",
    "RangePlace": "session/stacks/phases.py",
    "RangeRow": "views/tui/panes/phases_pane.py",
    "RangeTime": "session/steps.py",
    "RankCollective": "session/standing.py",
    "RankRow": "views/tui/panes/ranks_pane.py",
    "RunProcesses": "session/loaders.py session/session.py session/tables.py session/threads.py",
    "Sample": "session/stacks/samples.py",
    "Samples": "views/tui/profile/views.py views/tui/profile/profile_pane.py",
    "Senders": "diagnosis/rules/input.py",
    "Standing": "diagnosis/rules/course.py",
    "StandingProcess": "diagnosis/evidence/standstill.py session/standing.py",
    "StandingRank": "diagnosis/rules/course.py monitor/judging.py",
    "Standstill": "views/tui/sheets/stack_sheets.py",
    "StepStretch": "views/comparison/compare.py views/tui/panes/ranks_pane.py",
    "StepSummary": "views/tui/panes/phases_pane.py",
    "Steps": "records.py",
    "Stuck": "session/standing.py views/words.py",
    "ThreadRow": "views/tui/panes/threads_pane.py",
    "TracedSync": "views/words.py views/tui/sheets/trace_sheet.py",
    "Turns": "diagnosis/rules/ranks.py",
    "Uncaught": "monitor/monitor.py",
    "Unseen": "views/words.py",
    "UnusedGradients": "diagnosis/rules/model.py",
    "Warned": "diagnosis/rules/advice.py",
    "Windows": "session/stacks/process.py",
    "Workers": "diagnosis/evidence/data.py",
    "_Leads": "session/series.py",
    "_Tally": "session/stacks/samples.py",
    "_Times": "session/series.py",
    "_Use": "session/series.py session/threads.py",
}
_BY_POSITION = "read as one of all columns, by position"
#: Members that nobody reads by their name, and why they are there.
UNREAD = {
    "Header.schema": "read before its line is decoded",
    "Frame.branch": "keeps the position of the fields behind it, in logs of earlier versions",
    "Frame.inside": "keeps the position of the fields behind it, in logs of earlier versions",
    "Frame.packages": "keeps the position of the fields behind it, in logs of earlier versions",
    "OptimizerFacts.package": "for the user's own analysis of the log: whose optimizer it is",
    **dict.fromkeys(
        ("Steps.timed", "Steps.min_ns", "Steps.median_ns", "Steps.p95_ns", "Stacks.rate_hz", "Cost.window_s"),
        "for the user's own analysis of the log: a window's figure without its histogram, or its sums",
    ),
    "_Exchange.second": "the number by which ranks are compared: " + _BY_POSITION,
    "Filling.others": _BY_POSITION,
    "Rollout.copy": _BY_POSITION,
    **{
        f"SharedStep.{phase}_us": _BY_POSITION
        for phase in ("data", "forward", "backward", "optimizer", "other", "between")
    },
}


@cache
def names_in(file: str) -> frozenset[str]:
    """The attributes that a file reads, and its texts; the words of a template."""
    if not file.endswith(".py"):
        return frozenset(re.findall(r"\w+", (ROOT / file).read_text()))
    found = ast.walk(ast.parse((ROOT / file).read_text()))
    return frozenset(
        each.attr if isinstance(each, ast.Attribute) else str(each.value)
        for each in found
        if (isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load)) or isinstance(each, ast.Constant)
    )


def without_reader(read: Set[Member]) -> list[str]:
    """Members that nobody is known to read, and that have no reason not to be."""
    return [
        str(member)
        for member, _ in members()
        if member not in read
        and str(member) not in UNREAD
        and not any(member.name in names_in(file) for file in READ_IN.get(member.owner.__name__, "").split())
    ]


def rows_of_nothing() -> set[str]:
    """Rows of the tables for what is gone."""
    known = {str(member) for member, _ in members()} | {owner.__name__ for owner in classes()}
    return {*READ_IN, *UNREAD} - known
