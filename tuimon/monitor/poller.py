"""A thread for each source: calls ``read`` on an absolute schedule, and puts the records on one common queue.

``Pollers`` starts, queries and stops all pollers of a run together.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from tuimon.errors import TuimonError
from tuimon.records import Notice, Record
from tuimon.sources.base import Done, Source
from tuimon.text import plain

#: Records that pass from the sources' threads to the monitor, in lists.
RecordQueue: TypeAlias = "queue.Queue[Sequence[Record]]"
#: Delay of the next read after a failure, doubled at every further failure, up to the second value.
BACKOFF_S = (1.0, 30.0)
STOP_TIMEOUT_S = 2.0
_NO_THREAD_HINT = "Raise the limits on memory and processes: ulimit -v, ulimit -u, or those of the container"
#: Records of a replay that are put on the queue together: some ms of folding. To pass them one at a time costs more
#: than that, as each wakes the other thread.
MANY = 256


class Poller:
    """Runs one source until ``stop`` or the source's end.

    Records that find the queue full are dropped and counted in ``dropped``; with ``lossless`` (a replay) they wait.
    """

    def __init__(
        self,
        source: Source,
        records: RecordQueue,
        clock: Callable[[], float] = time.monotonic,
        *,
        lossless: bool = False,
    ) -> None:
        self.source = source
        self.dropped = 0
        self.done = threading.Event()
        self._records = records
        self._clock = clock
        self._lossless = lossless
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"tuimon-{source.name}", daemon=True)

    def start(self) -> None:
        """Begin to read; a source for which no thread can be started is left out, with a notice."""
        try:
            self._thread.start()
        except RuntimeError:  # Python raises it whether memory or the number of threads ran out
            self._put(self._notice("warning", "not watched: no thread could be started for it", _NO_THREAD_HINT))
            self._close()

    def request_stop(self) -> None:
        """Let the source read one last time and close; does not wait for it."""
        self._stopping.set()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stop after one last read; returns whether the source ended within ``timeout_s``."""
        self._stopping.set()
        if not self._thread.ident:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due_s = self._clock()
        try:
            while True:
                last = self._stopping.is_set()
                if not self._read_once() or last:
                    return
                due_s = self.next_due_s(due_s)
                self._stopping.wait(max(due_s - self._clock(), 0.0))
        finally:
            self._close()

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # its input may be gone, and there is nobody left to report to
            self.source.close()
        self.done.set()

    def next_due_s(self, due_s: float) -> float:
        """When to read next: on schedule, or later after failures; at most one missed read is made up for."""
        now_s = self._clock()
        if self._failures:
            first_s, longest_s = BACKOFF_S
            return now_s + min(first_s * 2.0 ** (self._failures - 1), longest_s)
        period_s = self.source.period_s
        due_s += period_s
        # tuimon was stopped, or the machine slept: another read right after this one would have a window of no length
        return due_s if due_s > now_s - period_s else now_s + period_s - (now_s - due_s) % period_s

    def _read_once(self) -> bool:
        """Read once; returns False if the source has come to its end."""
        try:
            self._put_read()
        except Done:
            return False
        except Exception as error:  # noqa: BLE001  (this is where a source meets the outside)
            self._failures += 1
            first_line, hint = next(iter(str(error).splitlines()), ""), None
            message = f"{type(error).__name__}: {first_line}".removesuffix(": ")
            if isinstance(error, TuimonError):
                message, hint = error.message, error.hint
            self._put(self._notice("warning", plain(message)[:300], hint))
        else:
            if self._failures:
                self._failures = 0
                self._put(self._notice("ok", "works again"))
        return True

    def _put_read(self) -> None:
        """Put the records that the source reads: one by one, or in a replay many together."""
        held: list[Record] = []
        try:
            for record in self.source.read():
                held.append(record)
                if len(held) >= (MANY if self._lossless else 1):
                    self._put(*held)
                    held = []
        finally:  # records read before the source failed or ended
            self._put(*held)

    def _notice(self, level: Literal["ok", "warning"], message: str, hint: str | None = None) -> Notice:
        return Notice(t=self._clock(), pid=0, source=self.source.name, level=level, message=message, hint=hint)

    def _put(self, *records: Record) -> None:
        """Put records, if there is room; in a replay wait for it, but not while stopping."""
        while records:
            waits = self._lossless and not self._stopping.is_set()
            try:
                self._records.put(records, waits, 0.1)
            except queue.Full:
                if waits:
                    continue
                self.dropped += len(records)
            return


class Pollers:
    """The pollers of all sources, which put their records on one queue."""

    def __init__(
        self, sources: Iterable[Source], records: RecordQueue, clock: Callable[[], float], *, lossless: bool
    ) -> None:
        """``sources``: an iterator, which makes and loads each source when reading begins."""
        self._records = records
        self._clock = clock
        self._lossless = lossless
        self.pollers: list[Poller] = []
        self._later: Iterator[Source] | None = sources if isinstance(sources, Iterator) else None
        if self._later is None:
            self._add(sources)

    @property
    def are_done(self) -> bool:
        """True if all sources have been made and have ended."""
        return self._later is None and all(poller.done.is_set() for poller in self.pollers)

    @property
    def sources(self) -> list[Source]:
        return [poller.source for poller in self.pollers]

    @property
    def unfinished(self) -> list[str]:
        """The names of the sources that have not ended."""
        return [poller.source.name for poller in self.pollers if not poller.done.is_set()]

    @property
    def dropped(self) -> int:
        """Records that were lost because the queue was full."""
        return sum(poller.dropped for poller in self.pollers)

    @property
    def read_ratio(self) -> float | None:
        """The share (0..1) of a log that a source has read; None if no source has more to read."""
        return next((source.read_ratio for source in self.sources if source.read_ratio is not None), None)

    def start(self) -> None:
        if self._later is not None:
            self._add(self._later)
            self._later = None
        for poller in self.pollers:
            poller.start()

    def _add(self, sources: Iterable[Source]) -> None:
        for source in sources:
            self.pollers.append(Poller(source, self._records, self._clock, lossless=self._lossless))

    def request_stop(self) -> None:
        """Let the sources read one last time and close; does not wait for them."""
        for poller in self.pollers:
            poller.request_stop()

    def stop(self) -> None:
        """Stop after one last read; sources that take longer than ``STOP_TIMEOUT_S`` are abandoned."""
        self.request_stop()
        until_s = time.monotonic() + STOP_TIMEOUT_S
        for poller in self.pollers:
            poller.stop(max(until_s - time.monotonic(), 0.0))
