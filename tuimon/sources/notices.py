"""Reports of sources on themselves: a problem with its next step, and notices that are fixed from the start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from tuimon.records import Notice, Record
from tuimon.sources.base import Done, Source


class Problem(NamedTuple):
    """Why a source shows nothing, and the next step.

    ``passing``: it may go away by waiting. ``expected``: no reason to worry, as on a machine without a GPU.
    ``denied``: another process may not read it; the process itself may report it.
    """

    message: str
    hint: str | None = None
    passing: bool = False
    expected: bool = False
    denied: bool = False

    def notice(self, source: str, t: float) -> Notice:
        """The notice of a source that has it."""
        level: Literal["info", "warning"] = "info" if self.expected else "warning"
        return Notice(t=t, pid=0, source=source, level=level, message=self.message, hint=self.hint)


class NoticeSource(Source):
    """A source of a few notices that are known from the start."""

    name = "options"
    period_s = 0.2

    def __init__(self, notices: Iterable[Notice]) -> None:
        self._notices: list[Record] = list(notices)

    def read(self) -> list[Record]:
        """All of them, once. Raises Done after that."""
        if not self._notices:
            raise Done
        notices, self._notices = self._notices, []
        return notices
