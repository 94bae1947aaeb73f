"""A recorded log for Python programs: ``tuimon.read_log``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import Verdicts, fold
from tuimon.records import Record
from tuimon.session.session import Session
from tuimon.sources.log.runs import Chosen, choose
from tuimon.sources.log.source import LogSource
from tuimon.views.report.report import report_of


class RecordedLog:
    """A log that ``--log`` has written: an iterable of typed records (``tuimon.records``), with their results.

    ``session`` and ``findings`` are folded from the records on first use, and kept.
    """

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._verdicts = Verdicts()

    @property
    def path(self) -> str:
        """The log, or the folder with the logs of a run on several nodes."""
        return self._chosen.path

    def __iter__(self) -> Iterator[Record]:
        """Read from the beginning; the header comes first. Raises NotALog."""
        return LogSource(self._chosen).read_all()

    @property
    def session(self) -> Session:
        """The state at the end of the log: ``over("whole")`` gives phases, steps, threads, samples and loaders."""
        return self._outcome[0]

    @property
    def findings(self) -> list[Finding]:
        """The verdicts over the whole run, the most important first."""
        return self._outcome[1]

    def report(self) -> dict[str, Any]:  # Any: JSON
        """The object of ``tuimon report --format json``, before rounding."""
        report = report_of(self.session, self.findings, self.path, self._verdicts.changes)
        content: dict[str, Any] = msgspec.to_builtins(report)
        return content

    @cached_property
    def _outcome(self) -> tuple[Session, list[Finding]]:
        return fold(self, self._verdicts)


def read_log(path: str | os.PathLike[str], run: str | None = None) -> RecordedLog:
    """The log at ``path``; in a folder the latest run with all its nodes, or the one named ``run``.

    Raises NotALog if there is none, UsageError if the folder has no such run.
    """
    log = RecordedLog(choose(str(path), run))
    next(iter(log), None)  # a path without a log is an error here, not where it is first read
    return log
