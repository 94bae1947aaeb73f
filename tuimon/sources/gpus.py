"""The machine's GPUs: NVML counters, one record a GPU and window."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tuimon.records import Gpu, Notice, Record, bare_uuid
from tuimon.sources import nvml, nvml_errors, procfs
from tuimon.sources.gpu_slot import Slot
from tuimon.sources.nvml import NvmlError
from tuimon.sources.nvml_processes import pid_trust
from tuimon.sources.patience import Patience
from tuimon.sources.targets import Targets
from tuimon.sources.trouble import Trouble
from tuimon.sources.visible_devices import named

_RETRY_S = 30.0
#: Between two looks at what changes fast.
_LOOK_S = 0.5
#: Shortest window of a record.
_RECORD_S = 0.25
#: Every call holds a lock of the driver that the job's own launches may wait for: no more of the time than this ...
_BUSY_RATIO = 0.05
#: ... unless it would make the figures older than this.
_LOOK_AT_LEAST_S = 5.0
#: With more GPUs than these, those that the run does not use are read less often: the log has to stay small.
_MANY = 2
_UNUSED_EVERY_S = 4.0
#: A call that takes longer hangs: the source goes on without it ...
_PATIENCE_S = 0.8
#: ... and says so after this long; the first call may load the driver, which takes seconds.
_HANGS_AFTER_S = 5.0


class GpuSource:
    """Reads all GPUs through NVML; what fails is said once and tried again, the rest goes on."""

    name = "gpu"

    def __init__(
        self,
        targets: Targets,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self.period_s = min(interval_s, _LOOK_S)
        self._window_s = max(interval_s, _RECORD_S)
        self._targets = targets
        self._clock = clock
        self._patience_s = patience_s
        self._calls: Patience[list[Gpu]] = Patience("tuimon-nvml")
        self._asked_s: float | None = None  # since when a call hangs
        self._library: nvml.Library | None = None
        self._slots: list[Slot] = []
        self._trouble: Trouble | None = None  # of the whole library
        self._retry_s = float("-inf")
        self._used: set[str] = set()  # bare UUIDs
        self._said: Trouble | None = None

    def read(self) -> Iterable[Record]:
        """Counters of the GPUs that answer; a notice when a trouble begins or ends."""
        now_s = round(self._clock(), 3)
        if self._asked_s is None:
            self._asked_s = now_s
        try:
            found = self._calls.ask(lambda: self._look(now_s), self._patience_s)
        finally:
            asked_s = self._asked_s
            self._asked_s = asked_s if self._calls.pending else None
        return self._hangs(now_s - asked_s, now_s) if found is None else [*self._notices(now_s), *found]

    def close(self) -> None:
        """Let go of the driver; one that hangs is left alone."""
        if self._library is not None and not self._calls.pending:
            self._calls.ask(self._close, self._patience_s)

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
        began_s = time.perf_counter()
        found = self._records(now_s)
        busy_s = (time.perf_counter() - began_s) / _BUSY_RATIO
        self.period_s = max(min(self._window_s, _LOOK_S), min(busy_s, _LOOK_AT_LEAST_S))
        return found

    def _open(self, now_s: float) -> None:
        try:
            self._library = nvml.Library()
            trust = pid_trust(self._library.driver_version())
            count = self._library.device_count()
            self._slots = [Slot(self._library, index, trust, self._clock) for index in range(count)]
        except NvmlError as error:
            self._close()
            self._fail(nvml_errors.explain(error), now_s)
            return
        self._trouble = None
        if not self._slots:
            self._close()
            self._fail(nvml_errors.no_devices(), now_s)

    def _fail(self, trouble: Trouble, now_s: float) -> None:
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
            self._fail(trouble or Trouble("no GPU answers"), now_s)
        return self._chosen(found)

    def _due(self, slot: Slot, now_s: float) -> bool:
        """Whether a window has ended; half a look early rather than a whole look late."""
        every_s = max(_UNUSED_EVERY_S, self._window_s) if self._seldom(slot) else self._window_s
        return now_s - slot.read_s >= every_s - min(self.period_s, every_s) / 2

    def _seldom(self, slot: Slot) -> bool:
        """Whether it is one of many GPUs, and none that the run uses."""
        if len(self._slots) <= _MANY or not self._used or slot.seen is None:
            return False
        return not self._used.intersection(map(bare_uuid, (slot.seen.uuid, *slot.seen.instances)))

    def _chosen(self, found: list[Gpu]) -> list[Gpu]:
        """Learn which GPUs the run uses; while none of its processes says so, by CUDA_VISIBLE_DEVICES."""
        facts = list(self._targets.facts.values())
        told = {bare_uuid(str(uuid)) for fact in facts for uuid in _list(fact.get("gpu_uuids")) if uuid}
        chosen = set() if told else self._named(facts)
        pids = set(self._targets.pids())
        computing = {bare_uuid(gpu.uuid) for gpu in found if pids.intersection(gpu.pids)}
        self._used = told | chosen | computing
        return [msgspec.structs.replace(gpu, chosen=True) if bare_uuid(gpu.uuid) in chosen else gpu for gpu in found]

    def _named(self, facts: Sequence[Mapping[str, object]]) -> set[str]:
        gpus = [slot.seen for slot in self._slots if slot.seen is not None]
        if len(gpus) < len(self._slots):  # numbers would count wrong
            return set()
        uuids: set[str] = set()
        for fact in facts or [self._environment()]:
            variable, order = fact.get("cuda_visible_devices"), fact.get("cuda_device_order")
            if isinstance(variable, str):
                uuids.update(named(variable, order if isinstance(order, str) else None, gpus))
        return {bare_uuid(uuid) for uuid in uuids}

    def _environment(self) -> dict[str, object]:
        """What the run was started with, until a process with torch says more."""
        environ = procfs.read_environ(self._targets.root)
        names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        return {name.lower(): environ.get(name) for name in names}

    # -- what is said

    def _hangs(self, for_s: float, now_s: float) -> Iterable[Notice]:
        trouble = nvml_errors.hangs()
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

    def _notice(self, trouble: Trouble, now_s: float) -> Notice:
        return Notice(
            t=now_s,
            pid=0,
            source=self.name,
            level="info" if trouble.expected else "warning",
            message=trouble.message,
            hint=trouble.hint,
        )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
