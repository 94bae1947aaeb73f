"""CUDA (and ROCm) as the GPU clock asks for it, through torch; see ``gpu_clock`` for what each question means.

Nothing here waits for a GPU, initialises CUDA, or makes a context on a device that has none. torch's own methods in C
are called where the public ones wrap them: half a microsecond each. An adapter for other accelerators would stand
beside this one, over ``torch.Event(device, enable_timing=True)`` and ``torch.accelerator.current_stream()``.
"""

import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Set

#: Where the current device is not in use, so long until it is asked again which one is.
LOOK_AGAIN_S = 1.0
#: Streams whose objects are kept; programs have a few.
_STREAMS = 64


class CudaStream:
    """A stream that was current: one object per stream, so that identity is equality."""

    __slots__ = ("device_index", "handle")

    def __init__(self, device_index: int, handle: Any) -> None:
        self.device_index = device_index
        self.handle = handle


class Memory(NamedTuple):
    """torch's allocator on one device."""

    allocated_bytes: int
    reserved_bytes: int
    retries: int
    ooms: int


class CudaDevice:
    """The device that this process uses: the current one, or where that holds no memory, the one that holds most."""

    def __init__(
        self, torch: Any, any_capture: Callable[[], bool], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._torch = torch
        self._native = torch._C
        self._cuda = torch.cuda
        self._any_capture = any_capture
        self._now_s = now_s
        event = getattr(self._native, "_CudaEventBase", torch.cuda.Event)
        self._record, self.done, self.elapsed_ms = event.record, event.query, event.elapsed_time
        self._query = getattr(self._native, "_CudaStreamBase", torch.cuda.Stream).query
        self._streams: Dict[Any, CudaStream] = {}
        self._holding: Set[int] = set()  # devices that hold memory
        self._substitute: Optional[int] = None  # for the current device, as long as that holds none
        self._substituted: Optional[int] = None
        self._look_again_s = 0.0

    def stream(self) -> Optional[CudaStream]:
        """The current stream of the device in use; None: no device is."""
        index = self._device()
        if index is None:
            return None
        data = self._native._cuda_getCurrentStream(index)
        known = self._streams.get(data)
        return known if known is not None and known.device_index == index else self._remember(data, index)

    def capturing(self) -> bool:
        """Whether any graph is being captured that is known of."""
        return self._any_capture() or bool(self._native._cuda_isCurrentStreamCapturing())

    def drained(self, stream: CudaStream) -> bool:
        """``cudaStreamQuery``."""
        return bool(self._query(stream.handle))

    def new_event(self) -> Any:
        """An event; the driver's own is made when it is first recorded."""
        return self._cuda.Event(enable_timing=True)

    def record(self, event: Any, stream: CudaStream) -> None:
        """``cudaEventRecord``."""
        self._record(event, stream.handle)

    def memory(self) -> Optional[Memory]:
        """Of the device in use; None where the allocator keeps no count. Peaks are the user's to reset."""
        index = self._device()
        return None if index is None else self._memory(index)

    def _device(self) -> Optional[int]:
        current = self._native._cuda_getDevice()
        if current in self._holding:
            return int(current)
        now_s = self._now_s()
        if current != self._substituted or now_s >= self._look_again_s:
            self._substitute, self._substituted = self._find(current), current
            self._look_again_s = now_s + LOOK_AGAIN_S
        return self._substitute

    def _find(self, current: int) -> Optional[int]:
        """A program may hold everything on a device that it has not made the current one."""
        held = {index: self._held_bytes(index) for index in range(self._cuda.device_count()) if self._is_in_use(index)}
        if held.get(current):
            self._holding.add(current)
            return current
        most = max(held, key=lambda index: (held[index], index == current), default=None)
        return most if most is not None and (held[most] or most == current) else None

    def _is_in_use(self, index: int) -> bool:
        """Whether there is a context: to make one takes hundreds of megabytes of the device."""
        has_context = getattr(self._native, "_cuda_hasPrimaryContext", None)
        return bool(has_context(index)) if has_context else self._held_bytes(index) > 0

    def _held_bytes(self, index: int) -> int:
        memory = self._memory(index)
        return 0 if memory is None else memory.reserved_bytes

    def _memory(self, index: int) -> Optional[Memory]:
        try:
            stats = self._native._cuda_memoryStats(index)
            allocated, reserved = (stats[name]["all"]["current"] for name in ("allocated_bytes", "reserved_bytes"))
            return Memory(allocated, reserved, stats["num_alloc_retries"], stats["num_ooms"])
        except Exception:  # a pluggable allocator counts nothing, and says so by raising
            return None

    def _remember(self, data: Any, index: int) -> CudaStream:
        if isinstance(data, tuple):
            named = dict(zip(("stream_id", "device_index", "device_type"), data))
            handle = self._cuda.Stream(**named)
        else:  # torch 1
            handle = self._cuda.current_stream(index)
        if len(self._streams) >= _STREAMS:
            self._streams.clear()
        stream = self._streams[data] = CudaStream(index, handle)
        return stream


class WaitingClock:
    """Stands in for the GPU clock until the program has initialised CUDA, which it may do late."""

    def __init__(self, cuda: Any, begin: Callable[[], None]) -> None:
        self._cuda = cuda
        self._begin = begin

    def number(self, kind: int, key: int = 0) -> int:
        """No events yet."""
        if getattr(self._cuda, "_initialized", True) and self._cuda.is_initialized():
            self._begin()
        return 0

    def record(self, number: int) -> None:
        """There is nothing to record."""

    def close(self) -> None:
        """There is nothing to give up."""

    def let_pass(self) -> None:
        """Nothing is being touched."""

    def in_child(self) -> "Optional[WaitingClock]":
        """What a forked child goes on with: CUDA works there only where the parent had not initialised it."""
        return None if getattr(self._cuda, "_initialized", True) else self


def is_built(torch: Any) -> bool:
    """Whether this torch has CUDA at all."""
    return hasattr(getattr(torch, "_C", None), "_cuda_getDevice")
