"""The machine's GPUs: a driver's counters, one record a GPU and window."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tuimon.proc.processes import environment_of
from tuimon.proc.ring_facts import RingFacts
from tuimon.records import GPUS_A_WINDOW, Gpu, Notice, Record, bare_uuid, used_uuids
from tuimon.sources.base import RETRY_S, Problem, Source
from tuimon.sources.gpus.amdsmi import AmdSmi
from tuimon.sources.gpus.driver import Slot, VendorLibrary, VisibleGpu
from tuimon.sources.gpus.nvml import Nvml
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.timeouts import CallWithTimeout

#: Seconds between two polls of fast-changing figures, between two records.
_POLL_S = 0.5
#: Every call holds a lock of the driver that the training's launches may need: the calls take at most this share ...
BUSY_RATIO = 0.05
#: ... but windows grow no longer than this for it.
_LONGEST_WINDOW_S = 4.0
#: With more GPUs than this, those that the run does not use are read less often, to keep the log small.
_MANY = 1
_UNUSED_EVERY_S = 4.0
#: A call that hangs is reported after this long, in which its thread had a core or slept; the first one may load the
#: driver, which takes seconds.
_HANGS_AFTER_S = 5.0


class GpuSource(Source):
    """Reads all GPUs of a driver; a failure is reported once and retried, and does not stop the rest."""

    def __init__(
        self,
        driver: type[VendorLibrary],
        table: ProcessTable,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
        call_timeout_s: float = 0.8,
        root: str = "",
        name: str = "gpu",
    ) -> None:
        """``root``: where /sys is."""
        self.name = name
        self.driver = driver
        self._interval_s = max(interval_s, 0.25)
        self._window_s = self._interval_s
        self.period_s = min(self._window_s, _POLL_S)
        self._trainers = table.trainers
        self._used_gpus = UsedGpus(table)
        self._clock = clock
        self._root = root
        self._timeout_s = call_timeout_s
        self._calls: CallWithTimeout[list[Gpu]] = CallWithTimeout(f"tuimon-{driver.name}")
        self._pending_since_s: float | None = None  # since when a call is under way, without its waits for a core
        self._library: VendorLibrary | None = None
        self._slots: list[Slot] = []
        self._problem: Problem | None = None  # of the whole library
        self._retry_s = float("-inf")
        self._reported: Problem | None = None

    def read(self) -> Iterable[Record]:
        """Records of the GPUs that answer; a notice when a problem begins or ends."""
        now_s = round(self._clock(), 3)
        if self._pending_since_s is None:
            self._pending_since_s = now_s - self._calls.waited_s
        try:
            found = self._calls.call(lambda: self._poll(now_s), self._timeout_s)
        finally:
            since_s = self._pending_since_s
            self._pending_since_s = since_s if self._calls.pending else None
        if found is not None:
            return [*self._notices(now_s), *found]
        problem = self.driver.hangs()
        if now_s - self._calls.waited_s - since_s < _HANGS_AFTER_S or self._reported == problem:
            return []
        self._reported = problem
        return [problem.notice(self.name, now_s)]

    def close(self) -> None:
        """Release the driver, unless a call hangs in it."""
        if self._library is not None and not self._calls.pending:
            self._calls.call(self._close, self._timeout_s)

    def _close(self) -> list[Gpu]:
        library, self._library = self._library, None
        for slot in self._slots:
            slot.close()
        self._slots = []
        if library is not None:
            library.close()
        return []

    # -- on the thread that makes the calls

    def _poll(self, now_s: float) -> list[Gpu]:
        if self._library is None and now_s >= self._retry_s:
            self._open(now_s)
            now_s = round(self._clock(), 3)  # seconds later, if this had to load the driver
        found = self._records(now_s)
        if found:  # windows get longer, and polls rarer, if a window's calls took too long
            cost_s = sum(gpu.cost_ms or 0.0 for gpu in found) / 1000
            longest_s = max(self._interval_s, _LONGEST_WINDOW_S)
            self._window_s = min(max(self._interval_s, cost_s / BUSY_RATIO), longest_s)
            lengthened = self._window_s > self._interval_s
            self.period_s = self._window_s / 2 if lengthened else min(self._window_s, _POLL_S)
        return found

    def _open(self, now_s: float) -> None:
        def use(library: VendorLibrary, number: int) -> VendorLibrary:
            library.clock, library.root = self._clock, self._root
            self._slots = [Slot(library, index) for index in range(number)]
            return library

        found = self.driver.opened(use)
        if isinstance(found, Problem):
            self._fail(found, now_s)
        else:
            self._library, self._problem = found, None

    def _fail(self, problem: Problem, now_s: float) -> None:
        self._problem = problem
        self._retry_s = now_s + RETRY_S

    def _records(self, now_s: float) -> list[Gpu]:
        found: list[Gpu] = []
        for slot in self._slots:
            if self._due(slot, now_s):
                found += slot.read(now_s)
            elif not self._is_unused(slot):
                slot.poll(now_s)
        if self._slots and all(slot.failures >= 2 for slot in self._slots):
            # all at the same time: the library failed (a container loses NVML when systemd reloads), or the driver was
            # unloaded
            problem = self._slots[0].problem
            self._close()
            self._fail(problem or Problem("no GPU answers"), now_s)
        return self._used_gpus.update(found, [slot.gpu for slot in self._slots])

    def _due(self, slot: Slot, now_s: float) -> bool:
        """True if a window has ended; half a polling period early rather than a whole one late."""
        used = sum(not self._is_unused(each) for each in self._slots)
        # of a process that uses many GPUs a record covers several windows, to keep the log small
        windows_s = self._window_s * -(-used // (GPUS_A_WINDOW * max(1, len(self._trainers()))))
        every_s = max(_UNUSED_EVERY_S, self._window_s) if self._is_unused(slot) else windows_s
        return now_s - slot.read_s >= every_s - min(self.period_s, every_s) / 2

    def _is_unused(self, slot: Slot) -> bool:
        """True if it is one of many GPUs, and not one that the run uses."""
        if len(self._slots) <= _MANY or not self._used_gpus.uuids or slot.gpu is None:
            return False
        return not self._used_gpus.uses(slot.gpu)

    # -- notices

    def _notices(self, now_s: float) -> Iterable[Notice]:
        problems = [self._problem] if self._problem else [slot.problem for slot in self._slots if slot.problem]
        if self._reported in problems or (self._reported is None and not problems):
            return []
        self._reported = problems[0] if problems else None
        if self._reported is None:
            return [Notice(t=now_s, pid=0, source=self.name, level="ok", message="all GPUs answer")]
        return [self._reported.notice(self.name, now_s)]


def gpu_sources(table: ProcessTable, interval_s: float) -> list[GpuSource]:
    """A source for each driver whose library is installed; without any, NVML's, which then reports that.

    Next to NVML, AMD's reports under a name of its own, so that neither takes back the other's notices.
    """
    if not AmdSmi.is_installed():
        return [GpuSource(Nvml, table, interval_s)]
    if not Nvml.is_installed():
        return [GpuSource(AmdSmi, table, interval_s)]
    return [GpuSource(Nvml, table, interval_s), GpuSource(AmdSmi, table, interval_s, name=AmdSmi.name)]


class UsedGpus:
    """The GPUs that the run uses."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._reported: set[str] = set()  # by the run's processes; bare UUIDs, as the next
        self._named: set[str] = set()  # by CUDA_VISIBLE_DEVICES
        self._latest: dict[str, Gpu] = {}  # the records of all, by UUID
        self.uuids: set[str] = set()

    def uses(self, gpu: VisibleGpu) -> bool:
        """True if the run uses this GPU, or an instance of it."""
        return not self.uuids.isdisjoint((gpu.uuid, *gpu.instances))

    def update(self, found: Sequence[Gpu], gpus: Sequence[VisibleGpu | None]) -> list[Gpu]:
        """Update from new records; returns them with ``chosen`` set. ``gpus``: by index, None if one never answered."""
        facts = list(self._table.facts.values())
        if facts or not (self._reported or self._named):  # once the run has ended, the GPUs that it used stay so
            self._reported = {bare_uuid(uuid) for each in facts for uuid in each.gpu_uuids}
            self._named = self._by_variable(facts, gpus)
        records = [msgspec.structs.replace(gpu, chosen=bare_uuid(gpu.uuid) in self._named) for gpu in found]
        self._latest |= {gpu.uuid: gpu for gpu in records}
        self.uuids = used_uuids(self._latest.values(), self._reported, set(self._table.pids()))
        return records

    def _by_variable(self, facts: Sequence[RingFacts], gpus: Sequence[VisibleGpu | None]) -> set[str]:
        answering = [gpu for gpu in gpus if gpu is not None]
        if len(answering) < len(gpus):  # the variable's numbers would be wrong
            return set()
        uuids: set[str] = set()
        # if each rank reports a GPU of its own, the launcher's variable may name GPUs that no rank uses
        variables = [(each.cuda_visible_devices, each.cuda_device_order) for each in facts]
        if self._reported or not facts:
            environ = environment_of(self._table.root_pid)  # of the process that was started
            variables.append((environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER")))
        for variable, order in variables:
            if variable is not None:
                uuids.update(named(variable, order, answering))
        return {bare_uuid(uuid) for uuid in uuids}


_PCI_ORDER = "PCI_BUS_ID"


def named(variable: str | None, order: str | None, gpus: Sequence[VisibleGpu]) -> list[str]:
    """UUIDs of the GPUs and MIG instances that the variable names, in its order; CUDA stops at the first bad entry.

    CUDA C++ Programming Guide, "CUDA Environment Variables".

    ``order``: CUDA_DEVICE_ORDER. Without it CUDA numbers the fastest GPU first: numbers are usable only if all GPUs
    are of one model, as that order is then PCI's.
    """
    found = []
    for entry in (variable or "").split(","):
        uuid = _one(entry.strip(), order, gpus)
        if uuid is None:
            break
        found.append(uuid)
    return found


def _one(entry: str, order: str | None, gpus: Sequence[VisibleGpu]) -> str | None:
    if entry.isdecimal():
        counted = all(gpu.numbered for gpu in gpus) and (order == _PCI_ORDER or len({gpu.name for gpu in gpus}) == 1)
        return gpus[int(entry)].uuid if counted and int(entry) < len(gpus) else None
    if entry.startswith("MIG-GPU-"):  # drivers before 470: MIG-GPU-<uuid>/<GPU instance>/<compute instance>
        entry = entry.removeprefix("MIG-").partition("/")[0]
    if entry.startswith("MIG-"):
        return _only(entry, [uuid for gpu in gpus for uuid in gpu.instances])
    return _only(entry, [gpu.uuid for gpu in gpus]) if entry.startswith("GPU-") else None


def _only(prefix: str, uuids: Sequence[str]) -> str | None:
    fitting = [uuid for uuid in uuids if uuid.lower().startswith(prefix.lower())]
    return fitting[0] if len(fitting) == 1 else None
