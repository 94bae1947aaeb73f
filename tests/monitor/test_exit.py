"""The Exit record is a log's last, however late the sources are."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from pathlib import Path

from tests.monitor.driving import HEADER
from tests.monitor.test_monitor import Given, Process, steps, ticked_until
from tests.waiting import until
from tuimon.launch.child import Ended
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.poller import MANY
from tuimon.records import Exit, Notice, Record
from tuimon.sources.log.reader import read_log
from tuimon.sources.log.writer import LogWriter


class Late(Given):
    """A source whose last read takes until the test lets it end."""

    name = "late"

    def __init__(self, *batches: list[Record]) -> None:
        super().__init__(*batches)
        self.reads, self.go = 0, threading.Event()

    def read(self) -> Iterable[Record]:
        self.reads += 1
        if self.reads > 1:
            self.go.wait()
        return super().read()


def test_nothing_follows_the_exit_and_what_came_too_late_is_said(tmp_path: Path) -> None:
    log, process, clock = LogWriter(str(tmp_path / "x.jsonl")), Process(), [100.0]
    late = Late([steps(1.0)], [steps(2.0)])
    monitor = Monitor([late, Given()], header=HEADER, log=log, process=process, clock=lambda: clock[0])
    monitor.start()
    ticked_until(monitor, lambda: monitor.session.over("recent").steps(7))
    process.ended = Ended(0, None)
    monitor.tick()
    assert not monitor.ended
    clock[0] += 3.0
    ticked_until(monitor, lambda: monitor.ended)
    late.go.set()
    until(lambda: monitor.pollers.are_done)
    clock[0] += 60.0  # tuimon was suspended
    monitor.tick()
    monitor.stop()
    *_, notice, last = read_log(log.path)
    assert isinstance(notice, Notice)
    assert "not done 2 s after the end of the run, the last window may be missing: late" in notice.message
    assert isinstance(last, Exit)


def test_all_that_was_read_comes_before_the_exit(tmp_path: Path) -> None:
    log, process, clock = LogWriter(str(tmp_path / "x.jsonl")), Process(), itertools.count(100.0, 0.2)
    records = [steps(1.0 + t / 100) for t in range(6 * MANY)]
    monitor = Monitor([Given([], records)], header=HEADER, log=log, process=process, clock=lambda: next(clock))
    monitor.start()
    process.ended = Ended(0, None)
    ticked_until(monitor, lambda: monitor.ended)
    monitor.stop()
    found = list(read_log(log.path))
    assert found[1:-1] == records and isinstance(found[-1], Exit)
