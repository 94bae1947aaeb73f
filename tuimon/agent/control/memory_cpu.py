"""The history of torch's CPU allocator, from torch's profiler: the allocator itself keeps none."""

import os
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from .memory_blocks import DEPTH, Blocks, Line

#: The profiler keeps every event of every step: 0.5 MB a step of 500 operators.
STEPS_LIMIT = 20


class CpuRecording:
    """One recording; begun and ended on the same thread."""

    device = "cpu"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._profile: Any = None

    def refusal(self, steps: int) -> Optional[str]:
        """Why it cannot be; None when it can."""
        if steps > STEPS_LIMIT:
            return "on a CPU at most %d steps can be recorded" % STEPS_LIMIT
        if self._torch.autograd._profiler_enabled():
            return "a profiler is on already"
        if sys.getprofile() is not None:
            return "the program has a profile function of its own (sys.setprofile), which this would replace"
        return None

    def begin(self) -> None:
        """Start the profiler, with memory and stacks."""
        profiler = self._torch.profiler
        self._profile = profiler.profile(
            activities=[profiler.ProfilerActivity.CPU], profile_memory=True, with_stack=True
        )
        self._profile.start()

    def end(self) -> None:
        """Stop; what was recorded is dropped."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.stop()

    def blocks(self, step_ends_ns: List[int]) -> Blocks:
        """Stop, and sort out what is left."""
        profile = self._profile
        self.end()
        events = _allocations(self._torch, profile.profiler.kineto_results.experimental_event_tree())
        blocks = Blocks(step_ends_ns)
        for time_ns, address, size, stack in sorted(events, key=lambda event: event[0]):
            if size > 0:
                blocks.allocate(time_ns, address, size, stack)
            else:
                blocks.free(address)
        return blocks

    @staticmethod
    def now_ns() -> int:
        """The clock of its events."""
        return time.time_ns()


class _Files:
    """Whole names of files, which the profiler gives without the entry of ``sys.path`` that they were found in."""

    def __init__(self) -> None:
        self._known: Dict[str, str] = {}

    def whole(self, name: str) -> str:
        """The name with its folder, if there is such a file."""
        known = self._known.get(name)
        if known is None:
            known = name
            for folder in [] if os.path.isabs(name) else sys.path:
                path = os.path.join(os.path.abspath(folder), name)
                if os.access(path, os.F_OK):
                    known = path
                    break
            self._known[name] = known
        return known


def _allocations(torch: Any, roots: Any) -> List[Tuple[int, int, int, Tuple[Line, ...]]]:
    """Time, address, bytes (negative: freed) and stack of each event of the CPU allocator."""
    kinds = torch._C._profiler._EventType
    found: List[Tuple[int, int, int, Tuple[Line, ...]]] = []
    files = _Files()
    waiting: List[Tuple[Any, Tuple[Line, ...]]] = [(root, ()) for root in roots]
    while waiting:
        event, stack = waiting.pop()
        if event.tag in (kinds.PyCall, kinds.PyCCall):
            stack = _called(event, event.tag == kinds.PyCall, stack, files)
        elif event.tag == kinds.Allocation and str(event.extra_fields.device) == "cpu":
            fields = event.extra_fields
            found.append((event.start_time_ns, fields.ptr, fields.alloc_size, stack))
        waiting.extend((child, stack) for child in event.children)
    return found


def _called(event: Any, is_python: bool, stack: Tuple[Line, ...], files: _Files) -> Tuple[Line, ...]:
    """The stack within a call: its innermost line is now the call's, and a Python function is one frame more.

    Where in a function an operator runs that is no call, such as ``a * b``, the profiler does not record: then the line
    is the function's first.
    """
    caller = event.extra_fields.caller
    line = (files.whole(caller.file_name), caller.line_number, caller.function_name)
    stack = (line, *stack[1:]) if stack else (line,)
    if is_python:
        site = event.extra_fields.callsite
        stack = ((files.whole(site.file_name), site.line_number, site.function_name), *stack)
    return stack[:DEPTH]
