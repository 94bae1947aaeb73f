"""The base of a vendor's driver: its library, devices that answer queries, and a place for each GPU."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from msgspec import Struct

from tuimon.records import Gpu, GpuProcess
from tuimon.sources.base import SELDOM_S, Problem
from tuimon.sources.timeouts import CallWithTimeout
from tuimon.text import plain

Library = TypeVar("Library", bound="VendorLibrary")
Answer = TypeVar("Answer")


class DriverError(Exception):
    """A library, or one device, failed; ``code`` is the library's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def words(self) -> str:
        """The library's own words."""
        return f"{plain(str(self))} ({self.code})"


class VendorLibrary:
    """A vendor's library, open while the instance lives. Raises DriverError if it cannot be opened."""

    name: ClassVar[str]
    says: ClassVar[str]  # its name in messages
    vendor: ClassVar[str]
    tool: ClassVar[str]  # a program of the vendor, for people
    figures: ClassVar[str]  # the figures that are missing without it
    #: The problem and the remedy for an error code; the first one, that there is no driver, is no reason to worry.
    PROBLEMS: ClassVar[Mapping[int, tuple[str, str | Callable[[], str | None] | None]]]
    numbered: ClassVar[bool]  # its GPUs are listed in PCI order, as CUDA may number them
    #: error codes: the GPU is gone; this GPU does not support the query; there is nothing to report
    FATAL: ClassVar[frozenset[int]]
    NEVER: ClassVar[frozenset[int]]
    NOTHING_NEW: ClassVar[frozenset[int]]
    NOT_SUPPORTED: ClassVar[int]
    SHUT_DOWN: ClassVar[str]  # the binding's function
    api: Any  # the Python binding; it ships no types
    clock: Callable[[], float] = staticmethod(time.monotonic)
    root = ""  # the folder that has /sys

    @classmethod
    def opened(cls: type[Library], use: Callable[[Library, int], Answer]) -> Answer | Problem:
        """The result of ``use`` for an open library and its number of GPUs; or a Problem, and the library is closed."""
        library = None
        try:
            library = cls()
            if number := library.device_count():
                return use(library, number)
            problem = cls.no_devices()
        except DriverError as error:
            problem = cls.explain(error)
        if library is not None:
            library.close()
        return problem

    @classmethod
    def query_once(cls: type[Library], query: Callable[[Library, int], Answer]) -> Answer | Problem:
        """The answer to a single query (``tuimon doctor``), or the Problem, such as a driver that hangs."""

        def answer(library: Library, number: int) -> Answer:
            with contextlib.closing(library):
                return query(library, number)

        calls: CallWithTimeout[Answer | Problem] = CallWithTimeout(f"tuimon-{cls.name}")
        # loading the driver takes seconds, with many GPUs tens of seconds
        return calls.call(lambda: cls.opened(answer), 60.0) or cls.hangs()

    def device_count(self) -> int:
        """Number of GPUs; in a container, of those visible to it. Raises DriverError."""
        raise NotImplementedError

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (as the binding)
        """Any function of the binding. Raises DriverError."""
        raise NotImplementedError

    def handle(self, index: int) -> Handle:
        """One GPU. Raises DriverError when it does not answer."""
        raise NotImplementedError

    def parts(self, handle: Handle) -> list[Handle]:
        """The parts of a GPU that report figures of their own. Raises DriverError when the GPU is gone."""
        return []

    def devices(self, handle: Handle, index: int, parts: Sequence[Handle]) -> Iterator[Device]:
        """The GPU of this index, then its parts. Raises DriverError when the GPU is gone."""
        raise NotImplementedError

    def uuid_of(self, raw: object) -> str:
        """The UUID of a device by the binding's handle. Raises DriverError when it does not answer."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the driver, which may be gone."""
        with contextlib.suppress(DriverError):
            self.call(getattr(self.api, self.SHUT_DOWN))

    @classmethod
    def explain(cls, error: DriverError) -> Problem:
        """An error of the whole library."""
        other = f"no {cls.figures}: {cls.says} says {error.words}", f"{cls.tool} shows more; tuimon will try again soon"
        message, hint = cls.PROBLEMS.get(error.code, other)
        is_expected = error.code == next(iter(cls.PROBLEMS))
        return Problem(message, hint() if callable(hint) else hint, expected=is_expected)

    def explain_device(self, what: str, error: DriverError, xids: Sequence[int]) -> Problem:
        """An error of one GPU, with the Xid errors that came just before."""
        return Problem(f"{what} gives no figures: {self.says} says {error.words}", "tuimon will try again soon")

    @classmethod
    def no_devices(cls) -> Problem:
        """The problem of a driver that works but counts no GPU."""
        return Problem(f"the {cls.vendor} driver shows no GPU", expected=True)

    @classmethod
    def hangs(cls) -> Problem:
        """The problem of a call into the driver that does not return."""
        hint = "Figures are out of date until it does; dmesg shows whether a GPU is in trouble"
        return Problem(f"the {cls.vendor} driver does not answer", hint, passing=True)


class Handle:
    """One device. A query that it does not support is made once, and is None from then on."""

    def __init__(self, library: VendorLibrary, raw: object) -> None:
        """``raw``: the binding's handle. Raises DriverError when it does not answer."""
        self.library = library
        self.api = library.api
        self.raw = raw
        self.uuid = library.uuid_of(raw)
        self.answers = 0  # since ``reset_counts``
        self.error: DriverError | None = None  # the first since ``reset_counts``
        self.cost_s = 0.0  # duration of the queries since ``reset_counts``
        self._never: set[str] = set()

    def reset_counts(self) -> None:
        """Begin a new window: reset ``answers``, ``error`` and ``cost_s``."""
        self.answers, self.error, self.cost_s = 0, None, 0.0

    def end_window(self) -> None:
        """Like ``reset_counts``; raises DriverError if no query has been answered since the last one."""
        if not self.answers:
            raise self.error or DriverError(self.library.NOT_SUPPORTED, "Not Supported")
        self.reset_counts()

    def supports(self, key: str) -> bool:
        """False once this was found not to be supported."""
        return key not in self._never

    def query(self, function: str, *arguments: object, key: str | None = None) -> Any:  # noqa: ANN401  (as the binding)
        """The result of a query of this device, or None. Raises DriverError only when the GPU is gone.

        ``key``: identifies the query once it was found unsupported, if the function alone does not.
        """
        return self.call(function, self.raw, *arguments, key=key)

    def call(self, function: str, *arguments: object, key: str | None = None) -> Any:  # noqa: ANN401  (as the binding)
        """Like ``query``, for a function whose first argument is not the device."""
        key = key or function
        if key in self._never:
            return None
        call = getattr(self.api, function, None)
        if call is None:  # an older binding
            self._never.add(key)
            return None
        began_s = time.perf_counter()
        try:
            answer = self.library.call(call, *arguments)
        except DriverError as error:
            if error.code in self.library.FATAL:
                raise
            if error.code in self.library.NEVER:
                self._never.add(key)
            if error.code not in self.library.NOTHING_NEW:
                self.error = self.error or error
            return None
        finally:
            self.cost_s += time.perf_counter() - began_s
        self.answers += 1
        return answer


_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


def in_first_pid_namespace() -> bool:
    """True if pids here are the machine's; in a container they may differ."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


#: Processes of a GPU in its record, and pids of such.
_LISTED, _PIDS = 16, 256


def process_fields(found: Collection[GpuProcess]) -> dict[str, Any]:  # Any: fields of one record, as others of it
    """The processes of a GPU with most memory, as many as its record has room for, and further pids.

    A pid of 0 is not valid.
    """
    listed = sorted(found, key=lambda process: -(process.memory_bytes or 0))[:_LISTED]
    return {"pids": sorted(process.pid for process in found if process.pid)[:_PIDS], "processes": listed}


#: Share of the time that the slow queries may take (process lists, ECC, power limit, PCIe link).
SLOW_QUERIES_RATIO = 0.02


class Device:
    """A GPU, or a part of one, queried in tiers by cost. Each figure is None if it is not supported.

    Its queries raise DriverError when the GPU is gone.
    """

    def __init__(self, handle: Handle, index: int, name: object) -> None:
        """``index`` is that of the GPU; ``name``: the product's, None if unknown."""
        self.handle = handle
        self.index = index
        self.name = plain(str(name or "GPU"))[:80]
        self.slow: dict[str, Any] = {}  # values that are not queried for each record, by its fields
        self._slow_due_s = float("-inf")

    def poll(self) -> None:
        """Query the figures that change within a window; costs microseconds."""

    def poll_slow(self) -> None:
        """Query the figures that take milliseconds, for ``slow``."""
        raise NotImplementedError

    def figures(self, t: float) -> dict[str, Any]:  # Any: fields of one record
        """The other fields of the record of the window that ends now, by name."""
        raise NotImplementedError

    def read(self, t: float) -> Gpu:
        """The record of the window that ends now. Raises DriverError when nothing answers."""
        self.poll()
        if t >= self._slow_due_s:
            before_s = self.handle.cost_s
            self.poll_slow()
            cost_s = self.handle.cost_s - before_s
            self._slow_due_s = t - 0.1 + max(SELDOM_S, cost_s / SLOW_QUERIES_RATIO)  # a record may come 0.1 s early
        figures = self.figures(t) | self.slow
        cost_ms = round(self.handle.cost_s * 1000, 2)
        self.handle.end_window()
        return Gpu(t=t, pid=0, index=self.index, uuid=self.handle.uuid, name=self.name, cost_ms=cost_ms, **figures)

    def pending_xids(self) -> list[int]:
        """The Xid errors that are in no record yet, of a GPU that does not answer."""
        return []

    def close(self) -> None:
        """Free what the library holds for it."""


class VisibleGpu(Struct, frozen=True, gc=False):
    """A GPU as its driver knows it."""

    uuid: str
    name: str
    instances: tuple[str, ...] = ()  # UUIDs of its MIG instances
    numbered: bool = True  # see ``VendorLibrary.numbered``


_OPEN_RETRY_S = (5.0, 60.0)


class Slot:
    """One GPU by its index, with its parts."""

    def __init__(self, library: VendorLibrary, index: int) -> None:
        self.library = library
        self.index = index
        self.problem: Problem | None = None
        self.failures = 0  # in a row
        self.read_s = float("-inf")  # when it was last read
        self.gpu: VisibleGpu | None = None
        self._devices: list[Device] = []  # the GPU first
        self._last: list[Gpu] = []  # of a GPU that failed, not read yet
        self._reopen_s = self._retry_s = float("-inf")

    def poll(self, now_s: float) -> None:
        """Query the figures that change fast, between two records."""
        if self._devices:
            try:
                self._devices[0].poll()
            except DriverError as error:
                self._fail(error, now_s)

    def read(self, now_s: float) -> list[Gpu]:
        """The new records of the GPU and its parts; none while it fails, but for those made before."""
        self.read_s = now_s
        if self.problem is None or now_s >= self._retry_s:
            try:
                if not self._devices or now_s >= self._reopen_s:
                    self._open(now_s)
                records = [device.read(now_s) for device in self._devices]
            except DriverError as error:
                self._fail(error, now_s)
            else:
                self.problem, self.failures = None, 0
                return records
        last, self._last = self._last, []
        return last

    def close(self) -> None:
        """Free what the library holds for it; the library may be gone."""
        for device in self._devices:
            device.close()
        self._devices = []

    def _open(self, now_s: float) -> None:
        """Open the GPU and its parts, unless they are unchanged."""
        handle = self.library.handle(self.index)
        parts = self.library.parts(handle)
        self._reopen_s = now_s + 30.0
        uuids = tuple(part.uuid for part in parts)
        if self._devices and self.gpu is not None and (self.gpu.uuid, self.gpu.instances) == (handle.uuid, uuids):
            return
        self.close()  # when a GPU is lost, those with higher indices may move up
        for device in self.library.devices(handle, self.index, parts):
            self._devices.append(device)  # immediately: what it holds is freed if the GPU is lost now
            device.handle.reset_counts()
        self.gpu = VisibleGpu(handle.uuid, self._devices[0].name, uuids, self.library.numbered)

    @property
    def words(self) -> str:
        """``GPU 0 (NVIDIA H200)``."""
        return f"GPU {self.index}" + (f" ({self.gpu.name})" if self.gpu is not None and self.gpu.name else "")

    def _fail(self, error: DriverError, now_s: float) -> None:
        xids = self._devices[0].pending_xids() if self._devices else []
        if xids and self.gpu is not None:
            self._last = [Gpu(t=now_s, pid=0, index=self.index, uuid=self.gpu.uuid, name=self.gpu.name, xids=xids)]
        self.problem = self.library.explain_device(self.words, error, xids)
        self.close()
        first_s, longest_s = _OPEN_RETRY_S
        self._retry_s = now_s + min(first_s * 2.0**self.failures, longest_s)
        self.failures += 1
