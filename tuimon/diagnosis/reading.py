"""A log read from its beginning: judged from moment to moment by the times of its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import Exit, Record
from tuimon.session.session import Session

#: Records are closer than this while a run is recorded: a longer time is judged by none of them.
_UNRECORDED_S = 60.0
#: A run of more ranks is judged less often, as much more as it has more: each judging takes about 0.6 ms a rank.
_RANKS_EACH_S = 16


class Reading:
    """Adds records to a session and judges it on the way, as a monitor would have while they were recorded."""

    def __init__(self, session: Session, verdicts: Verdicts) -> None:
        self.findings: Sequence[Finding] = ()
        self._session = session
        self._verdicts = verdicts
        self._judged_s: float | None = None
        self._due_s = 0.0  # worked out once a judgement, not for each of thousands of records

    def add(self, record: Record) -> None:
        """Add the next record of the log, and judge if it is time to."""
        session = self._session
        before_s = session.now_s if session.start_s is not None else record.t
        if isinstance(record, Exit) and self._judged_s is not None and before_s - self._judged_s >= 1.0:
            self.judge()  # what held at the end, as far as the last records show it
        session.add(record)
        if self._judged_s is None:
            self._judged_s = self._start_s
        if record.t - before_s > _UNRECORDED_S:
            self._judged_s += record.t - before_s
        if record.t < self._due_s or record.t - self._judged_s < 1.0:
            return
        self._due_s = self._judged_s + self._every_s(record.t)
        if record.t >= self._due_s:
            self.judge()

    def judge(self) -> Sequence[Finding]:
        """The findings of this moment; after the run's end, the last ones."""
        session = self._session
        if session.exit is None:
            lasting_s = session.now_s - self._judged_s if self._judged_s is not None else 0.0
            self.findings = self._verdicts.judge_moment(session, max(lasting_s, 0.0))
            self._judged_s = session.now_s
        return self.findings

    @property
    def _start_s(self) -> float:
        return self._session.start_s if self._session.start_s is not None else self._session.now_s

    def _every_s(self, now_s: float) -> float:
        """Once a second at first, less often as the log grows: rules cost milliseconds a rank and logs last days."""
        ranks = len(self._session.trainers())
        return max(1.0, (now_s - self._start_s) / 100) * max(1.0, ranks / _RANKS_EACH_S)


def fold(records: Iterable[Record], verdicts: Verdicts | None = None) -> tuple[Session, list[Finding]]:
    """The Session at the end of a log, and the findings over its steady part; ``verdicts`` keeps how they changed."""
    session, verdicts = Session(), verdicts or Verdicts()
    reading = Reading(session, verdicts)
    for record in records:
        reading.add(record)
    return session, verdicts.judge_run(session)
