"""Records of a steady run are held for ten seconds and written as one; at a change they are written as they came."""

from __future__ import annotations

from tuimon.records import Record
from tuimon.sources.log.coarse.merging import SPAN_S, follows, merged, subject
from tuimon.sources.log.coarse.steadiness import Steadiness

#: Records come this much later than the time they are about: nothing more of a window is to be expected then.
_LATE_S = 5.0
#: Most records held: a second's are some dozens.
_HELD = 5000


class Coarse:
    """Passes records on, those of a steady run merged."""

    def __init__(self, steadiness: Steadiness | None = None) -> None:
        self._steadiness = steadiness or Steadiness()
        self._held: list[Record] = []  # in the order they came
        self._changed = False

    def add_record(self, record: Record) -> list[Record]:
        """Add a record; returns those that are to be written."""
        if self._steadiness.add_record(record) or self._changed:
            self._changed = False
            held, self._held = self._held, []
            return [*held, record]
        if subject(record) is None:  # it stands for itself: frames come before the stacks that need them
            return [record]
        if not self._steadiness.is_steady(record.t):
            return [*self.rest(), record]
        due = self.rest() if self._held and (self._is_over(record.t) or len(self._held) >= _HELD) else []
        self._held.append(record)
        return due

    def note_change(self, t: float) -> None:
        """Something is new that no record shows: a verdict."""
        self._steadiness.note_change(t)
        self._changed = True

    def due(self, now_s: float) -> list[Record]:
        """What has been held for long enough, though nothing has come after it."""
        return self.rest() if self._held and self._is_over(now_s - _LATE_S) else []

    def rest(self) -> list[Record]:
        """All that is held, merged."""
        groups: list[list[Record]] = []
        latest: dict[tuple[object, ...] | None, list[Record]] = {}
        for record in self._held:
            key = subject(record)
            group = latest.get(key)
            if group is not None and follows(record, group[-1]):
                group.append(record)
            else:
                latest[key] = [record]
                groups.append(latest[key])
        self._held = []
        return sorted((merged(group) for group in groups), key=lambda record: record.t)

    def _is_over(self, t: float) -> bool:
        return t - self._held[0].t >= SPAN_S
