"""CUDA (and ROCm), through torch, as the GPU clock drives it; ``gpu_clock`` documents each method.

Nothing here waits for a GPU, initialises CUDA, or makes a context on a device that has none. torch's own methods in C
are called, not the public ones around them: half a microsecond each. An adapter for other accelerators would stand next
to this one, over ``torch.Event(device, enable_timing=True)`` and ``torch.accelerator.current_stream()``.

A graph's capture in the "global" mode, torch's default, is invalidated by any thread that queries an event or a stream
meanwhile (pytorch #104487, #148594). ``torch.cuda.graph``, ``make_graphed_callables`` and torch.compile's graphs all go
through ``CUDAGraph.capture_begin`` and ``capture_end``; ``torch.accelerator.Graph`` has the same two.
"""

import time
from functools import wraps
from typing import Any, Callable, Dict, NamedTuple, Optional, Set

from .outside import attempt, hide_frame
from .torch_compat import dynamo, rebinding

#: How often the device in use is searched for, if it is not the current one.
SEARCH_S = 1.0
#: Most streams whose objects are kept; programs have a few.
STREAMS_LIMIT = 64


class CudaStream:
    """A stream that was current: one object per stream, so that identity is equality."""

    __slots__ = ("device_index", "handle")

    def __init__(self, device_index: int, handle: Any) -> None:
        self.device_index = device_index
        self.handle = handle


class Memory(NamedTuple):
    """torch's allocator on one device: figures in the order of ``layout.MEMORY_*``."""

    allocated_bytes: int
    reserved_bytes: int
    retries: int
    ooms: int
    frees: Optional[int] = None  # by cudaFree and its like, which wait for the GPU; newer torch counts them
    pinned_bytes: Optional[int] = None  # of the host, in use or kept for reuse, in newer torch
    peak_bytes: Optional[int] = None  # most bytes allocated since the program began, or last reset this peak


class CudaDevice:
    """The device that this process uses: the current one, or if that holds no memory, the one that holds most."""

    def __init__(
        self, torch: Any, any_capture: Callable[[], bool], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._native = torch._C
        self._cuda = torch.cuda
        self._any_capture = any_capture
        self._now_s = now_s
        event = getattr(self._native, "_CudaEventBase", torch.cuda.Event)
        self._record, self.is_done, self.elapsed_ms = event.record, event.query, event.elapsed_time
        self._query = getattr(self._native, "_CudaStreamBase", torch.cuda.Stream).query
        self.streams: Dict[Any, CudaStream] = {}
        self._holding: Set[int] = set()  # devices that hold memory
        self._found: Optional[int] = None  # the device in use while the current one holds no memory
        self._searched_for: Optional[int] = None  # the current device at that search
        self._search_due_s = 0.0

    def stream(self) -> Optional[CudaStream]:
        """The current stream of the device in use; None while no device is in use."""
        index = self._device()
        if index is None:
            return None
        data = self._native._cuda_getCurrentStream(index)
        known = self.streams.get(data)
        if known is not None and known.device_index == index:
            return known
        if len(self.streams) >= STREAMS_LIMIT:
            self.streams.clear()
        handle = self._cuda.Stream(**dict(zip(("stream_id", "device_index", "device_type"), data)))
        stream = self.streams[data] = CudaStream(index, handle)
        return stream

    def is_capturing(self) -> bool:
        """True if a graph is being captured, in any thread that the hooks see or in this one."""
        return self._any_capture() or bool(self._native._cuda_isCurrentStreamCapturing())

    def is_idle(self, stream: CudaStream) -> bool:
        """``cudaStreamQuery``."""
        return bool(self._query(stream.handle))

    def new_event(self) -> Any:
        """A new event; the driver makes its own when this one is first recorded."""
        return self._cuda.Event(enable_timing=True)

    def record(self, event: Any, stream: CudaStream) -> None:
        self._record(event, stream.handle)

    def memory(self) -> Optional[Memory]:
        """The allocator's figures for the device in use; None if it keeps none. Resets no peak."""
        index = self._device()
        return None if index is None else attempt(self._memory, index)

    def _device(self) -> Optional[int]:
        current = self._native._cuda_getDevice()
        if current in self._holding:
            return int(current)
        now_s = self._now_s()
        if current != self._searched_for or now_s >= self._search_due_s:
            self._found, self._searched_for = self._search(current), current
            self._search_due_s = now_s + SEARCH_S
        return self._found

    def _search(self, current: int) -> Optional[int]:
        """The device in use: a program may hold all its memory on a device that it has not made the current one.

        Only devices with a context are queried: making a context takes hundreds of megabytes of a device's memory.
        """
        used = filter(self._native._cuda_hasPrimaryContext, range(self._cuda.device_count()))
        figures = {index: attempt(self._memory, index) for index in used}
        held = {index: 0 if memory is None else memory.reserved_bytes for index, memory in figures.items()}
        if held.get(current):
            self._holding.add(current)
            return current
        most = max(held, key=lambda index: (held[index], index == current), default=None)
        return most if most is not None and (held[most] or most == current) else None

    def _memory(self, index: int) -> Memory:
        """The allocator's figures; a pluggable allocator counts nothing and raises."""
        stats = self._native._cuda_memoryStats(index)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return Memory(
            allocated["current"],
            reserved["current"],
            stats["num_alloc_retries"],
            stats["num_ooms"],
            stats.get("num_device_free"),
            attempt(self._pinned_bytes),  # None before torch 2.6
            allocated.get("peak"),
        )

    def _pinned_bytes(self) -> int:
        """Bytes of the host's memory that torch has pinned; names differ between versions, so the largest figure."""
        figures = self._native._cuda_hostMemoryStats()
        return max(int(figure["current"]) for name, figure in figures.items() if name.endswith("bytes"))


def is_built(torch: Any) -> bool:
    return hasattr(getattr(torch, "_C", None), "_cuda_getDevice")


open_captures: Set[int] = set()


def any_capture() -> bool:
    return bool(open_captures)


def hook_captures(graphs: Any, before_begin: Callable[[], None]) -> None:
    """Follow captures. ``graphs`` is the module ``torch.cuda.graphs`` or ``torch.accelerator.graphs``.

    ``before_begin`` is called before each capture: it waits until no other thread touches an event.
    """
    graph_class = getattr(graphs, "CUDAGraph", None) or getattr(graphs, "Graph", None)
    begin = getattr(graph_class, "__dict__", {}).get("capture_begin")
    end = getattr(graph_class, "__dict__", {}).get("capture_end")
    if begin is None or end is None:
        return

    @wraps(begin)
    def tuimon_capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        open_captures.add(id(self))
        before_begin()
        try:
            return begin(self, *args, **kwargs)
        except BaseException as error:
            open_captures.discard(id(self))
            hide_frame(error)
            raise

    @wraps(end)
    def tuimon_capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return end(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            open_captures.discard(id(self))

    dynamo.skip(tuimon_capture_begin, tuimon_capture_end)
    rebinding.rebind(graph_class, "capture_begin", tuimon_capture_begin)
    rebinding.on_undo(open_captures.clear)  # the ends of open captures will not be noticed
    rebinding.rebind(graph_class, "capture_end", tuimon_capture_end)
