"""The machine's GPUs: NVML counters, one record a GPU and window."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

from tuimon.records import Gpu, Notice, Record
from tuimon.sources.notices import Problem
from tuimon.sources.nvml import errors
from tuimon.sources.nvml import library as nvml
from tuimon.sources.nvml.choice import GpuChoice
from tuimon.sources.nvml.library import NvmlError
from tuimon.sources.nvml.processes import pid_trust
from tuimon.sources.nvml.slot import Slot
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.timeouts import CallWithTimeout

_RETRY_S = 30.0
#: Between two looks at what changes fast.
_LOOK_S = 0.5
#: Shortest window of a record.
_RECORD_S = 0.25
#: Every call holds a lock of the driver that the job's own launches may wait for: no more of the time than this ...
_BUSY_RATIO = 0.05
#: ... unless it would make the figures older than this.
_WINDOW_AT_LEAST_S = 4.0
#: With more GPUs than these, those that the run does not use are read less often: the log has to stay small.
_MANY = 1
_UNUSED_EVERY_S = 4.0
#: A process that uses more GPUs than these gets its records of them less often, too.
_USED_BY_ONE = 2
#: A call that takes longer hangs: the source goes on without it ...
_PATIENCE_S = 0.8
#: ... and says so after this long; the first call may load the driver, which takes seconds.
_HANGS_AFTER_S = 5.0


class GpuSource:
    """Reads all GPUs through NVML; what fails is said once and tried again, the rest goes on."""

    name = "gpu"

    def __init__(
        self,
        table: ProcessTable,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._interval_s = max(interval_s, _RECORD_S)
        self._window_s = self._interval_s
        self.period_s = min(self._window_s, _LOOK_S)
        self._trainers = table.trainers
        self._choice = GpuChoice(table)
        self._clock = clock
        self._patience_s = patience_s
        self._calls: CallWithTimeout[list[Gpu]] = CallWithTimeout("tuimon-nvml")
        self._asked_s: float | None = None  # since when a call hangs
        self._library: nvml.Library | None = None
        self._slots: list[Slot] = []
        self._trouble: Problem | None = None  # of the whole library
        self._retry_s = float("-inf")
        self._said: Problem | None = None

    def read(self) -> Iterable[Record]:
        """Counters of the GPUs that answer; a notice when a trouble begins or ends."""
        now_s = round(self._clock(), 3)
        if self._asked_s is None:
            self._asked_s = now_s
        try:
            found = self._calls.call(lambda: self._look(now_s), self._patience_s)
        finally:
            asked_s = self._asked_s
            self._asked_s = asked_s if self._calls.pending else None
        return self._hangs(now_s - asked_s, now_s) if found is None else [*self._notices(now_s), *found]

    def close(self) -> None:
        """Let go of the driver; one that hangs is left alone."""
        if self._library is not None and not self._calls.pending:
            self._calls.call(self._close, self._patience_s)

    def _close(self) -> list[Gpu]:
        library, self._library = self._library, None
        for slot in self._slots:
            slot.close()
        self._slots = []
        if library is not None:
            with contextlib.suppress(NvmlError):  # a driver that is gone cannot be told
                library.close()
        return []

    # -- on the thread of the calls

    def _look(self, now_s: float) -> list[Gpu]:
        if self._library is None and now_s >= self._retry_s:
            self._open(now_s)
            now_s = round(self._clock(), 3)  # it may take seconds, where it has to wake the driver
        found = self._records(now_s)
        if found:
            self._pace(sum(gpu.cost_ms or 0.0 for gpu in found) / 1000)
        return found

    def _pace(self, cost_s: float) -> None:
        """Longer windows, fewer looks where a window's calls took too long."""
        longest_s = max(self._interval_s, _WINDOW_AT_LEAST_S)
        self._window_s = min(max(self._interval_s, cost_s / _BUSY_RATIO), longest_s)
        lengthened = self._window_s > self._interval_s
        self.period_s = self._window_s / 2 if lengthened else min(self._window_s, _LOOK_S)

    def _open(self, now_s: float) -> None:
        try:
            self._library = nvml.Library()
            trust = pid_trust(self._library.driver_version())
            count = self._library.device_count()
            self._slots = [Slot(self._library, index, trust, self._clock) for index in range(count)]
        except NvmlError as error:
            self._close()
            self._fail(errors.explain(error), now_s)
            return
        self._trouble = None
        if not self._slots:
            self._close()
            self._fail(errors.no_devices(), now_s)

    def _fail(self, trouble: Problem, now_s: float) -> None:
        self._trouble = trouble
        self._retry_s = now_s + _RETRY_S

    def _records(self, now_s: float) -> list[Gpu]:
        found: list[Gpu] = []
        for slot in self._slots:
            if self._due(slot, now_s):
                found += slot.read(now_s)
            elif not self._seldom(slot):
                slot.look(now_s)
        if self._slots and all(slot.failures >= 2 for slot in self._slots):
            # all at once: it is the library (a container loses NVML when systemd reloads), or the driver went away
            trouble = self._slots[0].trouble
            self._close()
            self._fail(trouble or Problem("no GPU answers"), now_s)
        return self._choice.learn(found, [slot.seen for slot in self._slots])

    def _due(self, slot: Slot, now_s: float) -> bool:
        """Whether a window has ended; half a look early rather than a whole look late."""
        every_s = max(_UNUSED_EVERY_S, self._window_s) if self._seldom(slot) else self._window_s * self._crowd()
        return now_s - slot.read_s >= every_s - min(self.period_s, every_s) / 2

    def _crowd(self) -> int:
        """How many windows a record covers, where a process uses so many GPUs that the log would grow too fast."""
        used = sum(not self._seldom(slot) for slot in self._slots)
        return -(-used // (_USED_BY_ONE * max(1, len(self._trainers()))))

    def _seldom(self, slot: Slot) -> bool:
        """Whether it is one of many GPUs, and none that the run uses."""
        if len(self._slots) <= _MANY or not self._choice.known or slot.seen is None:
            return False
        return not self._choice.uses(slot.seen)

    # -- what is said

    def _hangs(self, for_s: float, now_s: float) -> Iterable[Notice]:
        trouble = errors.hangs()
        if for_s < _HANGS_AFTER_S or self._said == trouble:
            return []
        self._said = trouble
        return [self._notice(trouble, now_s)]

    def _notices(self, now_s: float) -> Iterable[Notice]:
        troubles = [self._trouble] if self._trouble else [slot.trouble for slot in self._slots if slot.trouble]
        if self._said in troubles or (self._said is None and not troubles):
            return []
        self._said = troubles[0] if troubles else None
        if self._said is None:
            return [Notice(t=now_s, pid=0, source=self.name, level="ok", message="all GPUs answer")]
        return [self._notice(self._said, now_s)]

    def _notice(self, trouble: Problem, now_s: float) -> Notice:
        return Notice(
            t=now_s,
            pid=0,
            source=self.name,
            level="info" if trouble.expected else "warning",
            message=trouble.message,
            hint=trouble.hint,
        )
