"""The monitor: drains the sources' queue into the Session and the log, and watches the target to its end."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from tuimon.diagnosis import diagnose
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.steady import Change
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.launch import Ended, Launched, members
from tuimon.monitor.poller import STOP_TIMEOUT_S, Poller
from tuimon.records import Cost, Exit, Header, Record
from tuimon.session.session import Session
from tuimon.sources.base import Source
from tuimon.sources.log.output import OutputTail
from tuimon.sources.log.reader import LogWriter
from tuimon.sources.stacks.closeup import CloseUp

QUEUE_LIMIT = 10_000
#: A tick takes records in for at most this long, so that the screen stays alive while a long log is replayed.
TICK_S = 0.25
DIAGNOSE_EVERY_S = 1.0


class Target(Protocol):
    """A process that is watched."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def run_id(self) -> str | None:
        """What the processes of its run carry in their environment, if tuimon started it."""
        ...

    def poll(self) -> Ended | None:
        """How it ended; None while it lives."""
        ...


class Monitor:
    """One run that is watched, from ``start`` to ``stop``; all of it on the caller's thread but the sources' reads."""

    def __init__(
        self,
        sources: Sequence[Source],
        session: Session | None = None,
        *,
        header: Header | None = None,
        log: LogWriter | None = None,
        watched: Target | None = None,
        output: OutputTail | None = None,
        replay: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``watched``: the process whose end is the end; without one (replay) that of the sources is."""
        self.session = session or Session()
        self.findings: Sequence[Finding] = ()
        self.verdicts = Verdicts()  # over the whole run: at its end they take the place of the last moment's
        self.output = output
        self.closeup = CloseUp(live=not replay)
        self.log = log
        self.watched = watched
        self._clock = clock
        self._replay = replay
        self._records: queue.Queue[Record] = queue.Queue(QUEUE_LIMIT)
        self._pollers = [Poller(source, self._records, clock, lossless=replay) for source in sources]
        self._diagnosed_s: float | None = None
        self._stop_by_s: float | None = None  # the target has ended: its sources get until then for their last read
        self._ended_as: Ended | None = None
        self._ending = False
        self._stopped = False
        if header is not None:
            self._add(header)

    # -- what views ask

    @property
    def target(self) -> Launched | None:
        """The process that we launched; None when attached to one, or replaying."""
        return self.watched if isinstance(self.watched, Launched) else None

    @property
    def changes(self) -> Sequence[Change]:
        """When the primary verdict changed, oldest first."""
        return self.verdicts.changes

    @property
    def ended(self) -> bool:
        """Whether the run has ended and all there is to know of it is in the session."""
        if self._replay:
            return self.session.exit is not None or all(poller.done.is_set() for poller in self._pollers)
        return self._ended_as is not None and self.session.exit is not None

    @property
    def exit_code(self) -> int | None:
        """The target's exit code, 128+n for signal n; None before its end and where it cannot be known."""
        return self.session.exit.exit_code if self.session.exit else None

    @property
    def ending(self) -> str | None:
        """How far ending the run has come, for people; None when it was not asked for."""
        launched = self.target
        if not self._ending or launched is None:
            return None
        sent = launched.last_sent
        left_s = launched.next_signal_in_s(self._clock())
        done = f"sent {sent.name}" if sent else "ending the run"
        return done if left_s is None else f"{done}; stronger in {left_s:.0f} s"

    @property
    def dropped(self) -> int:
        """Records that were lost because the queue was full."""
        return sum(poller.dropped for poller in self._pollers)

    # -- what drives it

    def start(self) -> None:
        """Begin reading the sources."""
        for poller in self._pollers:
            poller.start()

    def begin_end(self) -> None:
        """Begin to end the launched run; every ``tick`` takes it further."""
        self._ending = self.target is not None

    def tick(self) -> bool:
        """Take in what has come since the last call; whether anything came."""
        now_s = self._clock()
        changed = self._drain(now_s + TICK_S)
        if self._ending and self.target is not None:
            changed = self.target.end_step(now_s) is not None or changed
        changed = self._watch(now_s) or changed
        if self.output is not None:
            self.output.trim()
        self._flush(now_s)
        if changed or self._diagnosed_s is None:
            self._diagnose(now_s)
        return changed

    def stop(self) -> None:
        """Stop the sources, write what is left to the log and close it. The target is not touched."""
        if self._stopped:
            return
        self._stopped = True
        for poller in self._pollers:
            poller.ask_to_stop()
        until_s = time.monotonic() + STOP_TIMEOUT_S
        for poller in self._pollers:
            poller.stop(max(until_s - time.monotonic(), 0.0))
        if not self._replay:
            self._drain(self._clock() + TICK_S)
            self._note_end(self._clock())
            self._diagnose(self._clock())
        self._flush(self._clock())
        if self.log is not None:
            self.log.close()

    # -- its parts

    def _add(self, record: Record) -> None:
        if isinstance(record, Cost) and self.dropped:
            record = msgspec.structs.replace(record, queue_dropped=self.dropped)
        self.session.add(record)
        if self.log is not None:
            self.log.add(record)

    def _drain(self, until_s: float) -> bool:
        came = False
        while self._clock() <= until_s:
            try:
                # a replay's source waits for room in the queue: give it the moment to fill it
                record = self._records.get(timeout=0.01) if self._replay else self._records.get_nowait()
            except queue.Empty:
                break
            self._add(record)
            came = True
        return came

    def _watch(self, now_s: float) -> bool:
        """Follow the target to its end: a last read of all sources, then the Exit record."""
        if self.watched is None or self.session.exit is not None:
            return False
        if self._stop_by_s is None:
            ended = self.watched.poll()
            if ended is None or self._still_ending(now_s):
                return False
            self._ended_as = ended
            self._stop_by_s = now_s + STOP_TIMEOUT_S
            for poller in self._pollers:
                poller.ask_to_stop()
        if now_s < self._stop_by_s and not all(poller.done.is_set() for poller in self._pollers):
            return False
        self._drain(now_s + TICK_S)
        return self._note_end(now_s)

    def _still_ending(self, now_s: float) -> bool:
        """Whether we are ending the run and its session holds processes that have not had every signal yet."""
        launched = self.target
        if not self._ending or launched is None:
            return False
        return launched.lives() and launched.next_signal_in_s(now_s) is not None

    def _note_end(self, now_s: float) -> bool:
        if self.watched is None or self.session.exit is not None:
            return False
        ended = self._ended_as or self.watched.poll()
        if ended is None:
            return False
        self._ended_as = ended
        failed = ended.exit_code != 0
        survivors = members(self.watched.run_id) if self.watched.run_id else []
        self._add(
            Exit(
                t=now_s,
                pid=self.watched.pid,
                exit_code=ended.exit_code,
                signal=ended.signal,
                last_line=self.output.last_traceback_line() if self.output and failed else None,
                survivors=[pid for pid in survivors if pid != self.watched.pid],
            )
        )
        return True

    def _flush(self, now_s: float) -> None:
        if self.log is None:
            return
        notice = self.log.flush(now_s)
        if notice is not None:
            self._add(notice)

    def _diagnose(self, now_s: float) -> None:
        if self._diagnosed_s is not None and now_s - self._diagnosed_s < DIAGNOSE_EVERY_S and not self.ended:
            return
        if self.session.exit is not None and not self._replay:
            self.findings = self.verdicts.ranked() or diagnose(self.session)
            return
        lasting_s = now_s - self._diagnosed_s if self._diagnosed_s is not None else 0.0
        self.findings = self.verdicts.judge(self.session, lasting_s)
        self._diagnosed_s = now_s
