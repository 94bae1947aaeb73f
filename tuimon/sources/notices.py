"""Reports of sources on themselves: a problem with its next step, and notices that are fixed from the start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tuimon.records import Record
from tuimon.sources.base import Done


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


class NoticeSource:
    """A source of a few notices, or other records, that are known from the start."""

    name = "options"
    period_s = 0.2

    def __init__(self, notices: Iterable[Record]) -> None:
        self._notices = list(notices)

    def read(self) -> list[Record]:
        """All of them, once. Raises Done after that."""
        if not self._notices:
            raise Done
        notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        """Do nothing: nothing is held."""
