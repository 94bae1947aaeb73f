"""Traces whole steps: torch's profiler is on from the beginning of a step to the end of the last.

The order's argument: how many steps, and for how many ms the training may be held up in all, to stop the profiler and
to write the file (``control_words.py``). That time grows with the events of a step, so first one step is traced as
a trial and thrown away, which also lets CUPTI set itself up; if that took long, another step. Then as many steps are
traced as fit. torch holds the GIL meanwhile and cannot be interrupted: a step with far more events than the trial holds
the training up for longer.

The trace lies in a file next to the ring, as kineto writes it. The answer's text holds the rest as JSON: ``steps``,
``wanted``, ``lines`` (whether they come in a file), ``limit`` (ms), ``begin`` and ``end`` (monotonic ns), ``unix`` (ns
to add for wall time), ``held`` and ``trial`` (ms), ``torch``.

``torch.profiler`` waits for the GPU when it stops, and parses the events in Python. Here libkineto is called directly:
it stops without waiting and writes the file itself.
"""

import gc
import json
import os
import sys
import time
from _thread import get_ident
from contextlib import suppress
from copy import copy
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .. import runtime
from ..outside import attempt, is_programs, variable
from ..pace import pace
from ..ring.control_words import TRACE_HELD_BIT, TRACE_HELD_MASK, TRACE_STEPS_LIMIT
from ..ring.files import LINES, TRACE, file_size_limit, remove_file, side_file, write_file
from ..ring.layout import BACKWARD_END, FOR_TRACE, PROFILER_OFF, PROFILER_ON
from ..steps import StepCounter
from ..torch_compat import dynamo
from ..torch_compat.rebinding import Rebound
from .orders import Task, Work
from .sample import CannotRead, SamplingThread, StackWindow, safe_window

#: Writing a trace and freeing it takes 0.7 to 1.3 times as long as stopping it (measured: 20,000 and 200,000
#: events, torch 2.13).
AFTER_STOP = 1.3
#: Share of the allowed time that the plan uses: steps differ, and machines are busy at times.
PLANNED = 0.8
#: A step that takes this many times as long as the trial, and longer than MIN_EVALUATION_NS, ends the trace: it is an
#: evaluation or a checkpoint, whose events would fill the memory.
LONG_STEP = 10
MIN_EVALUATION_NS = 2_000_000_000
#: The number of further steps to wait for the last step's work on the GPU.
GPU_STEPS = 3
#: The space that must be free for the file, and the size that files must be allowed: a trace that holds the training
#: up for 250 ms has 20 MB.
_ROOM_BYTES = 48 << 20


#: Most samples of a trace, and the least time between two of them (s).
SAMPLES = 4000
_SHORTEST_S = 0.001


class LineSampler(SamplingThread):
    """Samples the stack of the training thread while that is traced, a thousand times a second at most.

    torch's own ``with_stack`` follows every call of Python: the trace takes half as long again to stop and to write. A
    sample takes some 20 us, and the steps are slowed by the profiler anyway. The file is written once sampling stops.
    """

    def __init__(self, ring_path: str, thread: int, number: int, expected_ns: int, window: StackWindow) -> None:
        """``thread``: the one to sample (``get_ident``); ``number``: the order's, which the file repeats.

        ``expected_ns``: how long the trace may take.
        """
        super().__init__(side_file(ring_path, LINES))
        self._thread = thread
        self._number = number
        self._window = window
        self.is_kept = True
        self._pause_s = max(_SHORTEST_S, expected_ns / 1e9 / SAMPLES)
        remove_file(self.path)

    def sample(self) -> None:
        """Sample until it is stopped; then write the file if it is kept."""
        found: List[Tuple[int, int]] = []
        for _ in range(SAMPLES):
            if self.is_stopped_after(self._pause_s):
                break
            stack = self._window.stack_of_thread(self._thread)
            if stack is not None:
                found.append((time.monotonic_ns(), stack))
        if self.is_kept:
            places = {"frames": self._window.frames(), "stacks": self._window.stacks()}
            write_file(self.path, {"order": self._number, **places, "samples": found})


class Tracing(Work):
    """The trace that is being taken; used on the training thread alone. Boundaries are seen as they are marked."""

    def __init__(self, task: Task, torch: Any, writer: Any) -> None:
        self.task = task
        self.thread = get_ident()
        self.writer = writer
        self.lines: Optional[LineSampler] = None
        self._torch = torch
        self._profiler = Profiler(torch)
        self._guards = guards(torch.autograd.profiler, self.give_way) if torch is not None else []
        self._counter = copy(pace) if pace.thread == self.thread else StepCounter()
        self._is_on = self._is_over = False
        self._now_ns = self._limit_ns = 0
        self._stages = self._trace()
        next(self._stages)

    def watch(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """``runtime.emit`` while the trace is taken."""
        self.writer.emit(kind, value, flag)
        if get_ident() == self.thread and not self._is_over:
            try:
                self.see(kind)
            except Exception as error:
                if is_programs(error):
                    raise
                self.fail("%s: %s" % (type(error).__name__, error))

    def see(self, kind: int) -> None:
        """A boundary of the training thread has been marked."""
        self._now_ns = time.monotonic_ns()
        if self._is_on and self._now_ns > self._limit_ns:
            self.fail("a step took far longer than the one before it (an evaluation, a checkpoint?)")
        elif not self.task.is_wanted():
            self.end()
        elif self._counter.begins_step(kind) and not is_capturing(self._torch):
            has_ended = next(self._stages, True)
            if has_ended and not self._is_over:  # by an exception of the program
                self.fail("it was interrupted")

    def give_way(self) -> None:
        """The program starts a profiler of its own."""
        if get_ident() == self.thread:
            self.fail("the program has started a profiler of its own")

    def fail(self, reason: str) -> None:
        self.end()
        self.task.fail(reason)

    def end(self) -> None:
        """Leave everything as it was, without a trace."""
        self._leave()
        if self.lines is not None:
            self.lines.is_kept = False
            self.lines.stop()
        if self._is_on and get_ident() == self.thread:
            attempt(self._stop)

    def _trace(self) -> Iterator[None]:
        """All that is done at the beginning of a step, from one step to the next."""
        argument, uses_gpu = self.task.argument, self._profiler.uses_gpu
        wanted = max(1, min(argument & 0xFFFFFFFF, TRACE_STEPS_LIMIT))
        held_limit_ms = argument >> TRACE_HELD_BIT & TRACE_HELD_MASK or 250
        fitting = trials_ns = step_ns = 0
        for _ in range(2):  # a process's first trial includes work that is done only once
            yield
            begin_ns = self._now_ns
            self._start(600_000_000_000)
            yield
            step_ns = self._now_ns - begin_ns
            self._stop()
            trial_ns = max(1, time.monotonic_ns() - self._now_ns)
            trials_ns += trial_ns
            fitting = int((PLANNED * held_limit_ms * 1_000_000 - trials_ns) / (trial_ns * (1 + AFTER_STOP)))
            fitting -= GPU_STEPS if uses_gpu else 0  # which may have to pass with the profiler on
            if fitting >= wanted:
                break
        steps = min(wanted, max(1, fitting))
        # One step passes untraced: the trial has held the training up, and filled the loader's queue. And the first
        # beginning that is seen may be a false one, as the number of optimizers may not be known yet.
        yield
        yield
        begin_ns = self._now_ns
        with suppress(CannotRead):
            window = safe_window()()
            self.lines = LineSampler(self.writer.path, self.thread, self.task.number, step_ns * (steps + 1), window)
            self.lines.start()
        self._start(LONG_STEP * step_ns * (steps + GPU_STEPS) + MIN_EVALUATION_NS, FOR_TRACE)
        for taken in range(1, steps + 1):
            yield
            self.task.report(taken)
        end_ns, gpu = self._now_ns, stream_event(self._torch)
        for _ in range(GPU_STEPS):
            if gpu is None or gpu.query():
                break
            yield
        plan = {"steps": steps, "wanted": wanted, "limit": held_limit_ms, "trial": round(trials_ns / 1e6, 1)}
        self._write({**plan, "begin": begin_ns, "end": end_ns})

    def _start(self, limit_ns: int, flag: int = 0) -> None:
        self._switch_guards(on=False)
        self.writer.emit(PROFILER_ON, 0, flag)  # the monitor leaves the times of these steps out of its figures
        self._profiler.start()
        self._switch_guards(on=True)
        self._limit_ns = time.monotonic_ns() + limit_ns
        self._is_on = True

    def _switch_guards(self, *, on: bool) -> None:
        for guard in self._guards:
            guard.on() if on else guard.off()

    def _stop(self) -> Any:
        if self.lines is not None:
            self.lines.stop()
        try:
            result = self._profiler.stop()
        finally:
            self.writer.emit(PROFILER_OFF)
        self._is_on = False  # last: what an exception of the program cuts short is done again by ``end``
        return result

    def _leave(self) -> None:
        """Stop following boundaries and guarding the profiler."""
        self._is_over = True
        self._switch_guards(on=False)
        if runtime.emit == self.watch:
            runtime.emit = self.writer.emit

    def _write(self, answer: Dict[str, Any]) -> None:
        """Stop the profiler, write the file, free the trace: all of this holds the training up."""
        began_ns, path = time.monotonic_ns(), side_file(self.writer.path, TRACE)
        folder = os.path.dirname(path)
        result = self._stop()
        self._leave()
        remove_file(path)
        if not disk_has_room(folder):
            self.task.fail("there is no room for the trace in %s" % folder)
            return
        result.save(path)
        del result
        answer["held"] = round((time.monotonic_ns() - began_ns) / 1e6, 1)
        if not os.access(path, os.F_OK):
            self.task.fail("the trace could not be written to %s" % folder)
            return
        answer["lines"] = self.lines is not None
        answer["unix"] = time.time_ns() - time.monotonic_ns()
        answer["torch"] = str(getattr(self._torch, "__version__", ""))
        self.task.finish(answer["steps"], json.dumps(answer))


def begin(task: Task) -> Optional[Work]:
    """Get ready, at the end of a backward pass of the training thread."""
    torch, writer = sys.modules.get("torch"), runtime.writer()
    if torch is None or writer is None:
        task.refuse("there is no torch")
        return None
    reason = refusal(torch)
    if reason is None and not disk_has_room(os.path.dirname(writer.path)):
        reason = "there is no room for a trace in %s" % os.path.dirname(writer.path)
    if reason is not None:
        task.refuse(reason)
        return None
    task.needs_steps = True
    runtime.end_gap()
    tracing = Tracing(task, torch, writer)
    dynamo.skip_with_callees(tracing.watch)
    runtime.emit = tracing.watch
    tracing.see(BACKWARD_END)
    return tracing


def disk_has_room(folder: str) -> bool:
    """True if the folder of the ring has room for a trace."""
    found = os.statvfs(folder)
    return min(found.f_bavail * found.f_frsize, file_size_limit()) >= _ROOM_BYTES


#: Set for the first start in a process, when kineto reads it: else kineto adds two lines to stderr at every trace.
_LOG_LEVEL = "KINETO_LOG_LEVEL"
_SILENT = "6"
#: Variables that show another profiler: only one at a time can have the GPU's events.
_OTHERS = (
    ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
    ("NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "Nsight Compute"),
    ("CUDA_INJECTION64_PATH", "a CUDA tool (CUDA_INJECTION64_PATH)"),
    ("ROCP_TOOL_LIBRARIES", "rocprof"),
    ("HSA_TOOLS_LIB", "rocprof"),
)


class Profiler:
    """One trace of this thread; must be stopped on the thread that started it."""

    def __init__(self, torch: Any) -> None:
        self._module = torch.autograd.profiler
        self.uses_gpu = _uses_gpu(torch)
        self._profile = _new_profiler(self._module, self.uses_gpu)

    def start(self) -> None:
        module, profile = self._module, self._profile
        quiet = variable(_LOG_LEVEL) is None
        if quiet:
            os.environ[_LOG_LEVEL] = _SILENT
        try:
            module._prepare_profiler(profile.config(), profile.kineto_activities)
            module._enable_profiler(profile.config(), profile.kineto_activities)
        finally:
            if quiet and variable(_LOG_LEVEL) is not None:
                del os.environ[_LOG_LEVEL]

    def stop(self) -> Any:
        """The recording, with a ``save(path)``."""
        return self._module._disable_profiler()


def refusal(torch: Any) -> Optional[str]:
    """The reason why no trace can be taken on this thread now; None if it can."""
    module = getattr(getattr(torch, "autograd", None), "profiler", None)
    if module is None or not getattr(module, "kineto_available", bool)():
        return "this torch is built without kineto"
    enabled = getattr(torch._C._autograd, "_profiler_enabled", bool)
    if enabled():
        return "the program runs a profiler of its own now (torch.profiler, emit_nvtx)"
    profiles = [vars(each) for each in gc.get_referrers(module.profile) if type(each) is module.profile]
    if any(each.get("entered") and each.get("kineto_results") is None for each in profiles):  # and not left
        return "the program has a torch.profiler of its own ready"
    if _uses_gpu(torch):
        for name, tool in _OTHERS:
            if variable(name):
                return "%s has the GPU's events" % tool
    return None


def guards(module: Any, give_way: Callable[[], None]) -> List[Rebound]:
    """While a trace is taken, a profiler that the program starts has priority: torch allows only one at a time."""

    def giving_way(original: Any) -> Any:
        def tuimon_give_way(*args: Any, **kwargs: Any) -> Any:
            give_way()
            return original(*args, **kwargs)

        return tuimon_give_way

    names = ("_prepare_profiler", "_enable_profiler")
    return [Rebound(module, name, giving_way(getattr(module, name))) for name in names]


def stream_event(torch: Any) -> Any:
    """An event recorded on the current stream, to be queried for when it is done; None if no GPU is in use."""
    if not _uses_gpu(torch) or torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event()
    event.record()
    return event


def is_capturing(torch: Any) -> bool:
    """True if a CUDA graph is being captured, which a profiler must not disturb."""
    return _uses_gpu(torch) and bool(torch.cuda.is_current_stream_capturing())


def _new_profiler(module: Any, uses_gpu: bool) -> Any:
    """torch's own description of a trace; ``trace_only`` (2.13) leaves out events that only Python would read.

    Shapes, from which operations are counted, double the time to stop and to write (measured: 127 to 258 ms of 16,000
    events, torch 2.13).
    """
    settings = {"use_kineto": True, "record_shapes": True, **({"use_device": "cuda"} if uses_gpu else {})}
    config = attempt(lambda: sys.modules["torch"]._C._profiler._ExperimentalConfig(trace_only=True))
    return module.profile(**settings, **({} if config is None else {"experimental_config": config}))


def _uses_gpu(torch: Any) -> bool:
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())
