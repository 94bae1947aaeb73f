"""True if the log that a session was read from is still being written."""

from __future__ import annotations

from tuimon.session.session import Session

#: A log without an end whose last record is older than this and two windows is no longer written: windows of a run
#: that changes little are 10 s long.
FOLLOWED_S = 15.0


def is_written(session: Session, unix_s: float) -> bool:
    """True if there may be more to come at ``unix_s`` (seconds since 1970)."""
    header = session.header
    if header is None or session.exit is not None:
        return False
    age_s = unix_s - (header.wall_unix_s + session.now_s - header.t)
    return age_s < FOLLOWED_S + 2 * header.interval_s
