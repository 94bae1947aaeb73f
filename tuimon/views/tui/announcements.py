"""Notices that no pane shows: each is shown once, in a corner of the screen."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tuimon.session.session import Session
from tuimon.views.format import plain

#: Sources without a pane of their own: where metrics leave tuimon.
_SOURCES = ("prometheus", "textfile", "otlp", "metrics")


class Announcement(NamedTuple):
    """A notice as a line for people."""

    text: str
    severity: Literal["information", "warning"]


class Announcements:
    """Remembers what was shown."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def new(self, session: Session) -> list[Announcement]:
        """The news since the last call."""
        found = []
        for source in _SOURCES:
            notice = session.notices.get(source)
            if notice is not None and self._said.get(source) != notice.message:
                self._said[source] = notice.message
                hint = f". {plain(notice.hint)}" if notice.hint else ""
                severity: Literal["information", "warning"] = "warning" if notice.level == "warning" else "information"
                found.append(Announcement(f"{source}: {plain(notice.message)}{hint}", severity))
        return found
