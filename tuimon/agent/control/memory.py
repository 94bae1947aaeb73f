"""Records the history of torch's allocator for some steps, and what is still allocated at their end, by line."""

import sys
import time
from _thread import get_ident
from typing import Any, Dict, List, Optional

from .. import runtime
from ..ring.layout import PROFILER_OFF, PROFILER_ON
from ..ring.side_files import MEMORY, side_file, write_file
from .memory_cpu import CpuRecording
from .memory_cuda import CudaRecording
from .task import Task

NEEDS_STEPS = True


class _Recording:
    """The recording of one task. Steps are those of the thread that began it, from backward to backward."""

    def __init__(self, task: Task, allocator: Any) -> None:
        self.task = task
        self.allocator = allocator
        self.thread = get_ident()
        self.step_ends_ns: List[int] = []


_recording: Optional[_Recording] = None


def begin(task: Task) -> None:
    """The argument is the number of steps."""
    global _recording
    torch = sys.modules["torch"]
    allocator = allocator_of(torch)
    reason = allocator.refusal(task.argument)
    if reason:
        task.refuse(reason)
        return
    _recording = _Recording(task, allocator)
    runtime.emit(PROFILER_ON)  # the monitor leaves the times of these steps out of its figures
    allocator.begin()


def step(task: Task) -> None:
    """One more step; after the last one the file is written."""
    global _recording
    recording = _recording
    if recording is None or recording.task is not task or get_ident() != recording.thread:
        return
    recording.step_ends_ns.append(recording.allocator.now_ns())
    if len(recording.step_ends_ns) < task.argument:
        task.report(len(recording.step_ends_ns))
        return
    _recording = None
    begin_ns = time.monotonic_ns()
    content = recording.allocator.blocks(recording.step_ends_ns).content()
    content.update(order=task.number, pause_ns=time.monotonic_ns() - begin_ns)
    write("asked", recording.allocator.device, len(recording.step_ends_ns), content)
    runtime.emit(PROFILER_OFF)
    task.finish(len(recording.step_ends_ns))


def end(task: Task) -> None:
    """Stop; nothing is written."""
    global _recording
    recording, _recording = _recording, None
    if recording is not None and recording.task is task:
        recording.allocator.end()
        runtime.emit(PROFILER_OFF)


def allocator_of(torch: Any) -> Any:
    """CUDA's, once the program has initialised CUDA; else the CPU's."""
    cuda = getattr(torch, "cuda", None)
    return CudaRecording(torch) if cuda is not None and cuda.is_initialized() else CpuRecording(torch)


def write(trigger: str, device: str, steps: int, content: Dict[str, Any]) -> None:
    """Leave the result beside the ring. Raises OSError."""
    writer = runtime.writer()
    if writer is None:
        raise OSError("there is no ring")
    content.update(trigger=trigger, device=device, steps=steps, time_ns=time.monotonic_ns())
    write_file(side_file(writer.path, MEMORY), content)
