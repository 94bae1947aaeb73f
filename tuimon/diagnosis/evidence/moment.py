"""The Session, readable only at the moment that the evidence is of."""

from __future__ import annotations

from tuimon.session.session import Session


class Moment:
    """Holds lazy sections to one moment: once the Session has moved on, reading it raises RuntimeError."""

    __slots__ = ("_session", "now_s")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.now_s = session.now_s

    @property
    def session(self) -> Session:
        """The Session, unchanged since this moment."""
        if self._session.now_s != self.now_s:
            raise RuntimeError("this evidence is out of date: the session has merged records since")
        return self._session
