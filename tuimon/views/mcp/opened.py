"""The subject of an answer: a log, or a training that runs and is watched for some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.reading import fold
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.errors import NoSuchProcess, TuimonError, UsageError
from tuimon.launch.candidates import find_candidates
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.opening import open_attach
from tuimon.monitor.options import Options
from tuimon.session.session import Session
from tuimon.sources.log.joined.opening import choose, read_logs
from tuimon.text import whole_number
from tuimon.views.report.step_json import Json
from tuimon.views.report.summary import report_of

#: A training is no longer watched when nobody has queried it for so long.
IDLE_S = 300.0
#: At most so many are watched at a time: each has its own py-spy and its own reader of markers.
MOST_WATCHED = 4
_TICK_S = 0.5


class Seen(NamedTuple):
    """A training as an answer shows it."""

    session: Session
    findings: list[Finding]
    report: dict[str, Json]


class _Watched:
    """A training that runs, followed by a thread until nobody queries it any more."""

    def __init__(self, pid: int) -> None:
        self.used_s = self.begun_s = time.monotonic()
        self.lock = threading.Lock()
        self._end = threading.Event()
        self._monitor: Monitor = open_attach(pid, Options(headless=True))
        self._monitor.start()
        self._thread = threading.Thread(target=self._follow, name=f"watch {pid}", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def seen(self, seconds: float) -> Seen:
        """Its session once it has been watched for so long, or has ended."""
        self.used_s = time.monotonic()
        while time.monotonic() < self.begun_s + seconds and not self._monitor.ended:
            time.sleep(_TICK_S / 2)
        with self.lock:
            session, findings = self._monitor.session, list(self._monitor.findings)
            return Seen(session, findings, report_of(session, findings, "", self._monitor.changes))

    def stop(self) -> None:
        self._end.set()
        self._thread.join(10)

    def _follow(self) -> None:
        try:
            while not self._end.wait(_TICK_S) and time.monotonic() - self.used_s < IDLE_S and not self._monitor.ended:
                with self.lock:
                    self._monitor.tick()
        finally:
            with self.lock:
                self._monitor.stop()


class Trainings:
    """Opens what is queried; several threads may call it."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._lock = threading.Lock()

    def query(self, training: str | int, seconds: float, answer: Callable[[Seen], str]) -> str:
        """``answer`` of a training: a pid of the caller's own, or the path of a log; empty: the only training there is.

        Raises TuimonError.
        """
        named = str(training).strip()
        pid = whole_number(named)
        if named and pid is None:
            return answer(_of_log(str(training)))
        watched = self._watch(_only_one() if pid is None else pid)
        seen = watched.seen(seconds)
        with watched.lock:  # the session changes under it otherwise
            return answer(seen)

    def close(self) -> None:
        """Leave all trainings alone."""
        with self._lock:
            for watched in self._watched.values():
                watched.stop()
            self._watched.clear()

    def _watch(self, pid: int) -> _Watched:
        with self._lock:
            for known, each in list(self._watched.items()):
                if each.is_over:
                    del self._watched[known]
            watched = self._watched.get(pid)
            if watched is None:
                if all(candidate.pid != pid for candidate in find_candidates()):
                    raise NoSuchProcess(f"no training of yours has the pid {pid}", "The tool trainings lists them")
                if len(self._watched) >= MOST_WATCHED:
                    oldest = min(self._watched, key=lambda known: self._watched[known].used_s)
                    self._watched.pop(oldest).stop()
                watched = self._watched[pid] = _Watched(pid)
            return watched


def _only_one() -> int:
    """The caller's one training: that with markers, where others have only loaded torch."""
    found = find_candidates()
    pids = [each.pid for each in found if each.facts is not None] or [each.pid for each in found]
    if len(pids) != 1:
        there = f"there are {len(pids)}: pids {', '.join(map(str, pids))}" if pids else "none of yours runs here"
        raise UsageError(f"no training is named, and {there}", "Give training: one of their pids, or a log's path")
    return pids[0]


def _of_log(path: str) -> Seen:
    verdicts = Verdicts()
    session, findings = fold(read_logs(choose(path)), verdicts)
    if session.header is None:
        raise TuimonError(f"{path} holds no records yet")
    return Seen(session, findings, report_of(session, findings, path, verdicts.changes))
