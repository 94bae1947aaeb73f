"""Records the history of torch's CUDA allocator for some steps, and the memory in use at their end, by line.

torch records this history itself (torch.cuda.memory, "Understanding CUDA Memory Usage"); its CPU allocator has none.

With ``--memory``, the memory still allocated is noted at a CUDA out-of-memory error as well.
"""

import sys
import time
from _thread import get_ident
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import runtime
from ..outside import attempt
from ..ring.files import MEMORY, side_file, write_file
from ..ring.layout import PROFILER_OFF, PROFILER_ON
from .orders import Task, Work

#: A line of code: file, line, function.
Line = Tuple[str, int, str]
#: The number of stacks that are listed, those with most bytes; the others are summed up.
STACKS_LISTED = 300
#: Most frames kept of a stack, counted from the innermost.
KEPT_FRAMES = 24


class _HeldBlock(NamedTuple):
    size: int
    stack: Tuple[Line, ...]  # innermost first
    step: int


class Blocks:
    """Replays allocations and frees, oldest first; reports the memory still allocated, by allocating stack."""

    def __init__(self, step_ends_ns: List[int]) -> None:
        """``step_ends_ns``: when each recorded step ended, on the events' clock; later allocations are in no step."""
        self._ends = step_ends_ns
        self._step = 0
        self._live: Dict[int, _HeldBlock] = {}
        self._total = self._most = 0

    def allocate(self, time_ns: int, address: int, size: int, stack: Tuple[Line, ...]) -> None:
        while self._step < len(self._ends) and time_ns > self._ends[self._step]:
            self._step += 1
        self.free(address)
        self._live[address] = _HeldBlock(size, stack, self._step)
        self._total += size
        self._most = max(self._most, self._total)

    def free(self, address: int) -> None:
        """A block was freed, perhaps one from before the recording."""
        block = self._live.pop(address, None)
        if block is not None:
            self._total -= block.size

    def content(self) -> Dict[str, Any]:
        """The memory still allocated, by stack, most bytes first; ``growth`` is in bytes a step."""
        groups: Dict[Tuple[Line, ...], List[_HeldBlock]] = {}
        for block in self._live.values():
            groups.setdefault(block.stack, []).append(block)
        ordered = sorted(groups.items(), key=lambda group: -sum(block.size for block in group[1]))
        listed, rest = ordered[:STACKS_LISTED], ordered[STACKS_LISTED:]
        lines: Dict[Line, int] = {}
        stacks = [
            {
                "frames": [lines.setdefault(line, len(lines)) for line in stack],
                "bytes": sum(block.size for block in blocks),
                "blocks": len(blocks),
                "growth": _growth(blocks, len(self._ends)),
            }
            for stack, blocks in listed
        ]
        return {
            "lines": list(lines),
            "stacks": stacks,
            "folded_bytes": sum(block.size for _, blocks in rest for block in blocks),
            "live_bytes": self._total,
            "most_bytes": self._most,
        }


def _growth(blocks: List[_HeldBlock], steps: int) -> Optional[int]:
    """Bytes that each step leaves allocated; 0 unless most steps leave any; None if there was only one step.

    The last step does not count: its memory may be freed in the next. Memory that a single step leaves for good is
    set-up, such as an optimizer's state.
    """
    if steps < 2:
        return None
    left = [0] * (steps - 1)
    for block in blocks:
        if block.step < len(left):
            left[block.step] += block.size
    growing = sum(1 for size in left if size)
    return sum(left) // len(left) if 2 * growing > len(left) else 0


RECORDED_STEPS_LIMIT = 100
#: The number of latest events that the allocator keeps; with their stacks they take about 100 MB.
_EVENTS_LIMIT = 100_000
#: True once the history stays on, for out-of-memory errors: a recording of some steps does not turn it off.
is_watched = False


def begin(task: Task) -> Optional[Work]:
    """The argument is the number of steps."""
    torch = sys.modules["torch"]
    reason = refusal(torch, task.argument)
    if reason:
        task.refuse(reason)
        return None
    task.needs_steps = True
    runtime.emit(PROFILER_ON)  # the monitor leaves the times of these steps out of its figures
    return Recording(task, torch)


def refusal(torch: Any, steps: int) -> Optional[str]:
    """The reason why nothing can be recorded; None if a recording is possible."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return "it does not use CUDA, and torch keeps no history of memory on the CPU"
    if steps > RECORDED_STEPS_LIMIT:
        return "at most %d steps can be recorded" % RECORDED_STEPS_LIMIT
    if not is_watched and getattr(torch._C, "_cuda_isHistoryEnabled", bool)():
        return "the program records the allocator's history itself"
    return None


class Recording(Work):
    """Records a number of steps of the thread that began it, from backward to backward, on the current device."""

    def __init__(self, task: Task, torch: Any) -> None:
        self._task = task
        self._torch = torch
        self._thread = get_ident()
        self._device = torch.cuda.current_device()
        self._since_ns = time.time_ns() if is_watched else 0  # the clock of the allocator's events
        self._step_ends_ns: List[int] = []
        self._is_on = not is_watched
        if self._is_on:
            keep_history(torch)

    def step(self) -> None:
        """One more step; after the last one the file is written."""
        if get_ident() != self._thread:
            return
        self._step_ends_ns.append(time.time_ns())
        steps = len(self._step_ends_ns)
        if steps < self._task.argument:
            self._task.report(steps)
            return
        begin_ns = time.monotonic_ns()
        try:
            content = blocks_left(self._torch, self._device, self._step_ends_ns, self._since_ns).content()
        finally:
            self.end()
        content.update(order=self._task.number, pause_ns=time.monotonic_ns() - begin_ns)
        write("asked", self._device, steps, content)
        self._task.finish(steps)

    def end(self) -> None:
        """Stop, and drop the recorded history."""
        if self._is_on:
            self._is_on = False
            self._torch.cuda.memory._record_memory_history(None)
        runtime.emit(PROFILER_OFF)


def keep_history(torch: Any) -> None:
    """Have the allocator keep its history, with Python stacks."""
    torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=_EVENTS_LIMIT)


def blocks_left(torch: Any, device: int, step_ends_ns: List[int], since_ns: int = 0) -> Blocks:
    """The blocks of a device that are still allocated now, of those allocated since a moment."""
    blocks, traces = Blocks(step_ends_ns), torch.cuda.memory._snapshot().get("device_traces") or []
    for event in traces[device] if device < len(traces) else []:
        time_ns = event.get("time_us", 0) * 1000
        if event.get("action") == "alloc" and time_ns >= since_ns:
            stack = tuple((f["filename"], f["line"], f["name"]) for f in (event.get("frames") or [])[:KEPT_FRAMES])
            blocks.allocate(time_ns, event["addr"], event["size"], stack)
        elif event.get("action") == "free_completed":
            blocks.free(event["addr"])
    return blocks


def write(trigger: str, device: int, steps: int, content: Dict[str, Any]) -> None:
    """Leave the result in a file next to the ring. Raises OSError."""
    writer = runtime.writer()
    if writer is None:
        raise OSError("there is no ring")
    content.update(trigger=trigger, device="cuda:%d" % device, steps=steps, time_ns=time.monotonic_ns())
    write_file(side_file(writer.path, MEMORY), content)


def watch_errors() -> None:
    """Have the allocator keep its history from now on, and leave a file at each error; without CUDA, do nothing."""
    global is_watched
    torch: Any = sys.modules.get("torch")
    if is_watched or refusal(torch, 1) is not None:
        return

    def note(device: int, wanted: int) -> None:
        content = blocks_left(torch, device, []).content()
        content.update(wanted_bytes=wanted, pause_ns=0)
        write("oom", device, 0, content)

    def tuimon_out_of_memory(device: int, wanted: int, device_total: int, device_free: int) -> None:
        attempt(note, device, wanted)  # the program must get its own error, not one of ours

    torch._C._cuda_attach_out_of_memory_observer(tuimon_out_of_memory)
    keep_history(torch)
    is_watched = True
