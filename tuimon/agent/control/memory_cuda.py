"""The history of torch's CUDA allocator, which torch can record itself (torch.cuda.memory, "Understanding CUDA Memory
Usage").
"""

import time
from typing import Any, Dict, List, Optional

from .memory_blocks import DEPTH, Blocks

STEPS_LIMIT = 100
#: Events that the allocator keeps, the latest; with their stacks about 100 MB.
_EVENTS_LIMIT = 100_000


class CudaRecording:
    """One recording, of the current device."""

    #: True if the history is on for good, for errors for want of memory: a recording of some steps leaves it alone.
    is_watched = False

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.device = "cuda:%d" % torch.cuda.current_device()
        self._is_on = False
        self._since_ns = 0

    def refusal(self, steps: int) -> Optional[str]:
        """Why it cannot be; None when it can."""
        if steps > STEPS_LIMIT:
            return "at most %d steps can be recorded" % STEPS_LIMIT
        if not self.is_watched and getattr(self._torch._C, "_cuda_isHistoryEnabled", lambda: False)():
            return "the program records the allocator's history itself"
        return None

    def begin(self) -> None:
        """Have the allocator keep its history, with Python stacks."""
        if self.is_watched:
            self._since_ns = self.now_ns()
            return
        self._is_on = True
        self._torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=_EVENTS_LIMIT)

    def end(self) -> None:
        """Stop; what was recorded is dropped."""
        if self._is_on:
            self._is_on = False
            self._torch.cuda.memory._record_memory_history(None)

    def blocks(self, step_ends_ns: List[int]) -> Blocks:
        """Stop, and sort out what is left."""
        blocks = self.blocks_now(step_ends_ns)
        self.end()
        return blocks

    def blocks_now(self, step_ends_ns: List[int]) -> Blocks:
        """What is left at this moment; the recording goes on."""
        snapshot = self._torch.cuda.memory._snapshot()
        blocks = Blocks(step_ends_ns)
        for event in _of_device(snapshot.get("device_traces") or [], int(self.device[5:])):
            time_ns = event.get("time_us", 0) * 1000
            if event.get("action") == "alloc" and time_ns >= self._since_ns:
                stack = tuple((f["filename"], f["line"], f["name"]) for f in (event.get("frames") or [])[:DEPTH])
                blocks.allocate(time_ns, event["addr"], event["size"], stack)
            elif event.get("action") == "free_completed":
                blocks.free(event["addr"])
        return blocks

    @staticmethod
    def now_ns() -> int:
        """The clock of its events."""
        return time.time_ns()


def _of_device(traces: List[Any], device: int) -> List[Dict[str, Any]]:
    return list(traces[device]) if device < len(traces) else []
