"""The monitor: moves records from the sources' queue to the Session and the log, until the run ends."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from tuimon.diagnosis.finding import Finding
from tuimon.launch.child import ExitStatus, Launched
from tuimon.monitor.options import Observer
from tuimon.monitor.poller import MANY, STOP_TIMEOUT_S, Pollers, RecordQueue
from tuimon.records import Cost, Exit, Header, Notice, Record
from tuimon.session.session import Session
from tuimon.sources.base import Source
from tuimon.sources.log.output import OutputTail
from tuimon.sources.plain_records import plain_record

if TYPE_CHECKING:
    from tuimon.diagnosis.verdicts import Verdicts
    from tuimon.launch.attached import Attached
    from tuimon.monitor.hooks import Hooks  # needed only after an attach
    from tuimon.monitor.live_verdicts import LiveVerdicts  # the rules, not needed for the first frame
    from tuimon.sources.log.writer import LogWriter  # needed only with a log
    from tuimon.sources.process_table import ProcessTable
    from tuimon.sources.source_text import CloseUp


QUEUE_LIMIT = 10_000
#: Longest time for which a tick handles records, so that the screen responds while a long log is replayed.
LONGEST_TICK_S = 0.25
#: A pause between two ticks is recorded if it exceeds this and two windows: tuimon was stopped, or the machine was
#: overloaded. Views tick at least once per window.
PAUSE_S = 5.0


#: A process that failed longer ago than this did not end the run: launchers give the other processes 30 s to end.
FAILED_S = 60.0


class Monitor:
    """Monitors one run, from ``start`` to ``stop``; only the sources read on threads of their own."""

    def __init__(
        self,
        sources: Iterable[Source],
        session: Session | None = None,
        *,
        header: Header | None = None,
        log: LogWriter | None = None,
        process: Launched | Attached | None = None,
        table: ProcessTable | None = None,
        output: OutputTail | None = None,
        hooks: Hooks | None = None,
        observers: Sequence[Observer] = (),
        replay: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The run ends with ``process``, or in a replay with the sources; an iterator makes these at the start."""
        self.session = session or Session()
        self.findings: Sequence[Finding] = ()
        self.output = output
        self.hooks = hooks  # for a process that was attached to
        self.log = log
        self.process = process
        self._table = table  # of a live run
        self._observers = Observers(observers)
        self._clock = clock
        self._replay = replay
        self.records: RecordQueue = queue.Queue(max(1, QUEUE_LIMIT // (MANY if replay else 1)))
        self.pollers = Pollers(sources, self.records, clock, lossless=replay)
        self._window_s = header.interval_s if header is not None else 1.0
        self._ticked_s: float | None = None
        self._started = self._judged = self._has_failed = False
        self._stop_by_s: float | None = None  # deadline of the sources' last read, once the process has ended
        self._ended_as: ExitStatus | None = None
        self._ending = False
        self._stopped = False
        if header is not None:
            self._add_record(header)

    @property
    def launched(self) -> Launched | None:
        """The process, if tuimon launched it; None after an attach or in a replay."""
        return self.process if isinstance(self.process, Launched) else None

    @cached_property
    def closeup(self) -> CloseUp | None:
        """The reader of the code around a line; None in a replay, whose files may be on another machine."""
        from tuimon.sources.source_text import CloseUp

        return CloseUp(launched=self.launched is not None) if self.is_live else None

    @property
    def verdicts(self) -> Verdicts:
        """The verdicts on the whole run, which at its end replace those of the last moment."""
        return self._judging.verdicts

    def measuring_s(self, unix_s: float) -> int | None:
        """The seconds measured at ``unix_s`` while no verdict has held; None once one has, or no records come."""
        awaits = self._judged and self.session.exit is None and (self.is_live or self.is_followed(unix_s))
        return self.verdicts.measuring_s if awaits else None

    @property
    def ended(self) -> bool:
        """True if the run has ended and all its records are in the session."""
        if self._replay:
            return self.session.exit is not None or (self.pollers.are_done and self.records.empty())
        return self._ended_as is not None and self.session.exit is not None

    @property
    def is_live(self) -> bool:
        """True if the monitor watches live processes; False if it replays a log."""
        return not self._replay

    def is_followed(self, unix_s: float) -> bool:
        """True if this replays a log that is still being written at ``unix_s`` (seconds since 1970)."""
        header = self.session.header
        if not self._replay or header is None or self.session.exit is not None:
            return False
        return header.moment_s(unix_s) - self.session.now_s < header.late_after_s

    @property
    def read_ratio(self) -> float | None:
        """The share (0..1) of a log that has been read so far; None once all of it has been read."""
        return self.pollers.read_ratio

    @property
    def exit_code(self) -> int | None:
        """The process's exit code, 128+n for signal n; None before its end, and if it cannot be known."""
        return self.session.exit.exit_code if self.session.exit else None

    @property
    def ending(self) -> str | None:
        """Progress of ending the run, as a phrase for the user; None unless ``begin_end`` was called."""
        return self.launched.ending.text(self._clock()) if self._ending and self.launched is not None else None

    @property
    def dropped(self) -> int:
        """Records that were lost because the queue was full."""
        return self.pollers.dropped

    def start(self) -> None:
        """Load the rules and the sources, and begin to read; to be called once."""
        if self._started:
            return
        self._started = True
        _ = self._judging
        self.pollers.start()

    def add_notice(self, source: str, message: str) -> None:
        """Record an event that concerns tuimon itself."""
        self._add_record(Notice(t=self._clock(), pid=0, source=source, level="info", message=message))

    def limit_sampling(self, max_cpu_ratio: float) -> None:
        """Limit the CPU for stack samples to this part of a core from now on."""
        if self._table is not None:
            self._table.sampling_ratio = max_cpu_ratio

    def record_memory(self) -> bool:
        """Record the allocator's history of the next steps; returns False if no source can."""
        can = self._table is not None and any(source.name == "memory" for source in self.pollers.sources)
        if self._table is not None:
            self._table.wants_memory = can
        return can

    def begin_end(self) -> None:
        """Begin to end the launched run; each further ``tick`` continues it."""
        self._ending = self.launched is not None

    def tick(self) -> bool:
        """Handle the records received since the last call; returns whether anything changed."""
        now_s = self._clock()
        pause_s = now_s - self._ticked_s if self._ticked_s is not None else 0.0
        self._ticked_s = now_s
        if not self._replay and pause_s > PAUSE_S + 2 * self._window_s:
            self.add_notice("tuimon", f"it did not run for {pause_s:.0f} s, so nothing was sampled in that time")
        changed = self._drain(now_s + LONGEST_TICK_S)
        if self._ending and self.launched is not None:
            changed = self.launched.continue_end(now_s) is not None or changed
        changed = self._check_end(now_s) or changed
        if self.output is not None and self.launched is not None:  # after an attach it is not ours to cut
            self.output.trim()
        self._flush(now_s)
        if changed or not self._judged:
            self.diagnose_if_due(now_s)
        for notice in self._observers.show(self.session, self.findings):
            self._add_record(notice)
        return changed

    def stop(self) -> None:
        """Stop the sources, write the remaining records to the log and close it. The run itself goes on."""
        if self._stopped:
            return
        self._stopped = True
        self.pollers.stop()
        if not self._replay:
            self._drain(self._clock() + LONGEST_TICK_S)
            self._record_end(self._clock())
            self.diagnose_if_due(self._clock())
        self._observers.close(self.session, self.findings)
        self._flush(self._clock())
        if self.log is not None:
            self.log.close()

    def _add_record(self, record: Record) -> None:
        record = plain_record(record)
        if isinstance(record, Cost) and self.dropped:
            record = msgspec.structs.replace(record, queue_dropped=self.dropped)
        log = None if self._is_over else self.log
        self.session.add(record)
        if log is not None:
            log.add_record(record)

    @property
    def _is_over(self) -> bool:
        """True if the log has its last record, the Exit."""
        return self.session.exit is not None and not self._replay

    def _drain(self, until_s: float) -> bool:
        received = False
        # a log's records need no completion, and hundreds of ranks have thousands of them
        add = self.verdicts.add if self._replay else self._add_record
        with contextlib.suppress(queue.Empty):
            while self._clock() <= until_s:
                # a replay's source may be waiting for room in the queue: give it time to fill the queue
                for record in self.records.get(self._replay, 0.01):
                    if not self._is_over:  # after the Exit, sources were late
                        add(record)
                received = True
        return received

    def _check_end(self, now_s: float) -> bool:
        """After the process has ended: read all sources one last time, then add the Exit record."""
        if self.process is None or self.session.exit is not None:
            return False
        if self._stop_by_s is None:
            ended, ours = self.process.poll(), self.launched if self._ending else None
            if ended is None or (ours is not None and ours.is_alive() and ours.ending.next_in_s(now_s) is not None):
                return False  # some processes of a run that we end have not yet been sent all signals
            self._ended_as = ended
            self._stop_by_s = now_s + STOP_TIMEOUT_S
            self.pollers.request_stop()
        if now_s < self._stop_by_s and not self.pollers.are_done:
            return False
        late = self.pollers.unfinished
        self._drain(now_s + LONGEST_TICK_S)
        if not self.records.empty() and now_s < self._stop_by_s + STOP_TIMEOUT_S:
            return True
        if late:
            when = f"{STOP_TIMEOUT_S:g} s after the run's end"
            self.add_notice("tuimon", f"not finished {when}, so the last window may be missing: {', '.join(late)}")
        return self._record_end(now_s)

    def _record_end(self, now_s: float) -> bool:
        if self.process is None or self.session.exit is not None:
            return False
        self._ended_as = ended = self._ended_as or self.process.poll()
        if ended is None:
            return False
        from tuimon.launch.attached import processes_of_run

        survivors = processes_of_run(self.process.run_id) if self.process.run_id else []
        self._add_record(
            Exit(
                t=now_s,
                pid=self.process.pid,
                exit_code=ended.exit_code,
                signal=ended.signal,
                **self._error(self.process.pid, ended),
                survivors=[pid for pid in survivors if pid != self.process.pid],
            )
        )
        return True

    def _error(self, root: int, ended: ExitStatus) -> dict[str, Any]:  # Any: fields of Exit
        """The exception that ended the run: the root process's if it trains, else that of the first process to fail.

        A process that failed before another one began did not end the run.
        """
        if ended.exit_code == 0:
            return {}
        raised, header = self.session.uncaught, self.session.header
        began = [header.moment_s(p.start_unix_s) for p in self.session.processes() if p.pid in raised] if header else []
        went_on_s = max((self._clock() - FAILED_S, *began))
        late = [each for each in raised.values() if each.t > went_on_s]
        if root in raised and root in self.session.trainers():
            late = [raised[root]]
        elif not ended.exit_code and root not in raised:  # the run went on after that process
            late = []
        if (error := min(late, key=lambda each: each.t, default=None)) is not None:
            return {"last_line": error.error, "file": error.file, "line": error.line, "function": error.function}
        return {"last_line": self.output.last_traceback_line() if self.output else None}

    def _flush(self, now_s: float) -> None:
        if self.log is not None and (notice := self.log.flush(now_s)):
            self._add_record(notice)

    def diagnose_if_due(self, now_s: float) -> None:
        """Judge the run if it is time, at most once a second."""
        if not self._judging.is_due(now_s) and not self.ended and not self._stopped:
            return
        self._judged = True
        goes_on_unwatched = self._stopped and not self._replay
        is_last = goes_on_unwatched or self._is_over or (self.session.exit is not None and self.records.empty())
        try:
            self.findings = self.verdicts.judge_run() if is_last else self._judging.judge(now_s)
        except Exception as error:
            if self._replay:
                raise
            if not self._has_failed:
                message = f"the verdict is not kept up to date: {type(error).__name__}: {str(error)[:200]}"
                hint = "report this with the log, please; what is measured is still right"
                self._add_record(Notice(t=now_s, pid=0, source="tuimon", level="warning", message=message, hint=hint))
            self._has_failed = True  # said once; the next moment may be judged again

    @cached_property
    def _judging(self) -> LiveVerdicts:
        from tuimon.monitor.live_verdicts import LiveVerdicts

        return LiveVerdicts(self.pollers, self._table, self.session)


class Observers:
    """Calls all observers; one that raises is left out from then on, with a notice."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = list(observers)

    def show(self, session: Session, findings: Sequence[Finding]) -> Iterator[Notice]:
        """Call all observers; returns their notices."""
        for observer in tuple(self._observers):
            try:
                yield from observer.show(session, findings)
            except Exception as error:  # noqa: BLE001  (a fault in one view ends neither the monitor nor the others)
                self._observers.remove(observer)
                message = f"no longer kept up to date: {type(error).__name__}: {str(error)[:200]}"
                yield Notice(t=session.now_s, pid=0, source=observer.name, level="warning", message=message)

    def close(self, session: Session, findings: Sequence[Finding]) -> None:
        for observer in self._observers:
            with contextlib.suppress(Exception):  # as above; and the run is over
                observer.close(session, findings)
        self._observers.clear()
