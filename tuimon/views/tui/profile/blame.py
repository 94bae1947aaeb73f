"""Which thread a verdict blames: the one whose samples pass through the place that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.records import Place
from tuimon.session.rows import ThreadRow
from tuimon.session.samples.sample_profile import SampleProfile
from tuimon.views.tui.profile.scope import Scope

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

#: Workers whose samples are searched: they do the same work, and a table of each takes some milliseconds.
_WORKERS = 8


class Blamed(NamedTuple):
    """A thread, and the line of its code."""

    row: ThreadRow
    place: Place


def blamed(session: Session, findings: Sequence[Finding]) -> Blamed | None:
    """The training thread or the worker with most samples at the place of the first finding; None without any."""
    where = findings[0].where[0] if findings and findings[0].where else None
    pid = session.trainer()
    if where is None or pid is None:
        return None
    rows = session.over("recent").threads()
    training = [row for row in rows if (row.pid, row.tid) == (pid, session.training_tid(pid))]
    workers = [row for row in rows if row.kind == "worker"][:_WORKERS]
    passed = [(_samples_at(session, row, where), row) for row in (*training, *workers)]
    most, row = max(passed, key=lambda found: found[0], default=(0, None))
    return Blamed(row, where) if row is not None and most else None


def _samples_at(session: Session, row: ThreadRow, where: Place) -> int:
    """How many samples of a thread pass through a line."""
    samples = Scope(row.pid, row.tid, row.role).samples(session)
    lines = SampleProfile(samples).lines().lines
    return sum(line.total for line in lines if (line.place.file, line.place.line) == (where.file, where.line))
