"""Traces whole steps: torch's profiler is on from the beginning of a step to the end of the last.

The order's argument: how many steps, and for how many ms the training may be held up in all, to stop the profiler and
to write the file (``control_words.py``). What that takes grows with the events of a step, so one step is traced for
itself and thrown away, which also lets CUPTI set itself up; where that took long, another one. Then as many are traced
as fit. torch holds the GIL meanwhile and cannot be interrupted: a step with far more events than the one that was tried
holds the training up for longer.

What was taken lies in a file beside the ring, as kineto writes it. The answer's text holds the rest as JSON: ``steps``,
``wanted``, ``lines`` (whether they come in a file), ``limit`` (ms), ``begin`` and ``end`` (monotonic ns), ``unix`` (ns
to add for wall time), ``held`` and ``trial`` (ms), ``torch``.
"""

import json
import os
import sys
import time
from _thread import get_ident
from contextlib import suppress
from typing import Any, Optional

from .. import runtime
from ..outside import is_programs
from ..pace import pace
from ..ring.control_words import TRACE_HELD_BIT, TRACE_HELD_MASK, TRACE_STEPS_LIMIT
from ..ring.layout import BACKWARD_END, PROFILER_OFF, PROFILER_ON, TRACED_STEPS
from ..ring.no_ring import file_size_limit
from ..ring.side_files import TRACE, remove_file, side_file
from ..steps import StepCounter
from ..torch_compat import dynamo
from ..tracing.profiler import Guard, Profiler, is_capturing, refusal, stream_event
from .stack_windows import CannotRead, safe_window
from .task import Task
from .trace_lines import LineSampler

NEEDS_STEPS = True  # without a ``step``: the boundaries are seen as they are marked

#: To write a trace and to let go of it takes 0.7 to 1.3 times as long as to stop it (measured: 20,000 and 200,000
#: events, torch 2.13).
AFTER_STOP = 1.3
#: Part of the allowed time that is planned for: steps differ, and machines are busy at times.
PLANNED = 0.8
#: A step that takes so many times as long as the trial ends the trace, beyond the other time (ns): an evaluation, a
#: checkpoint; its events would fill the memory.
LONG_STEP = 10
LEAST_NS = 2_000_000_000
#: The work of the last step may still run on the GPU: how many more steps are waited for.
GPU_STEPS = 3
#: The space that must be free for the file, and the size that files must be allowed: a trace that holds the training
#: up for 250 ms has 20 MB.
_ROOM_BYTES = 48 << 20


class Tracing:
    """The trace that is being taken; on the training thread alone."""

    def __init__(self, task: Task, torch: Any, writer: Any) -> None:
        self.task = task
        self.wanted = max(1, min(task.argument & 0xFFFFFFFF, TRACE_STEPS_LIMIT))
        self.held_limit_ns = (task.argument >> TRACE_HELD_BIT & TRACE_HELD_MASK or 250) * 1_000_000
        self.thread = get_ident()
        self.writer = writer
        self.path = side_file(writer.path, TRACE)
        self.steps = self.wanted
        self._torch = torch
        self._profiler = Profiler(torch)
        self._guard = Guard(torch, self.give_way)
        self._counter = pace.copy() if pace.thread == self.thread else StepCounter()
        self._does: Any = self._start_trial  # at the beginning of the next step
        self._is_on = False
        self._begin_ns = self._end_ns = self._limit_ns = 0
        self._trials_ns = self._trial_step_ns = 0
        self._trials = self._taken = self._more = 0
        self._gpu: Any = None
        self._lines: Optional[LineSampler] = None

    def see(self, kind: int) -> None:
        """A boundary of the training thread has been marked."""
        now_ns = time.monotonic_ns()
        if self._is_on and now_ns > self._limit_ns:
            self.fail("a step took far longer than the one before it (an evaluation, a checkpoint?)")
        elif not self.task.is_wanted():
            self.abandon()
        elif self._counter.begins_step(kind) and not is_capturing(self._torch):
            self._does(now_ns)

    def give_way(self) -> None:
        """The program starts a profiler of its own."""
        if get_ident() == self.thread:
            self.fail("the program has started a profiler of its own")

    def fail(self, reason: str) -> None:
        """End without a trace."""
        self.abandon()
        self.task.fail(reason)

    def abandon(self) -> None:
        """Leave everything as it was, without a trace."""
        global _tracing
        _tracing = None
        self._guard.lift()
        if runtime.emit is watch:
            runtime.emit = self.writer.emit
        if self._is_on and self._lines is not None:
            self._lines.stop(keep=False)
        if self._is_on and get_ident() == self.thread:
            self._stop()

    def _start(self, now_ns: int, limit_ns: int, flag: int = 0) -> None:
        self._guard.lift()
        self.writer.emit(PROFILER_ON, 0, flag)  # the monitor leaves the times of these steps out of its figures
        self._profiler.start()
        self._guard.set()
        self._is_on = True
        self._begin_ns = now_ns
        self._limit_ns = now_ns + limit_ns

    def _stop(self) -> Any:
        self._is_on = False
        if self._lines is not None:
            self._lines.stop(keep=self._taken >= self.steps)
        try:
            return self._profiler.stop()
        finally:
            self.writer.emit(PROFILER_OFF)

    def _start_trial(self, now_ns: int) -> None:
        self._start(now_ns, 600_000_000_000)
        self._does = self._stop_trial

    def _stop_trial(self, now_ns: int) -> None:
        self._trial_step_ns = now_ns - self._begin_ns
        self._stop()
        trial_ns = max(1, time.monotonic_ns() - now_ns)
        self._trials += 1
        self._trials_ns += trial_ns
        fitting = int((PLANNED * self.held_limit_ns - self._trials_ns) / (trial_ns * (1 + AFTER_STOP)))
        if self._profiler.uses_gpu:
            fitting -= GPU_STEPS  # which may have to pass with the profiler on
        self.steps = min(self.wanted, max(1, fitting))
        # in the first trial of a process much is done that is done once
        again = fitting < self.wanted and self._trials == 1
        self._does = self._start_trial if again else self._start_steps

    def _start_steps(self, now_ns: int) -> None:
        """Let one step pass untraced first: the trial has held the training up, and filled the loader's queue.

        The first beginning that is seen need not be one: it may not be known yet how many optimizers there are.
        """
        self._does = self._begin_steps

    def _begin_steps(self, now_ns: int) -> None:
        limit_ns = LONG_STEP * self._trial_step_ns * (self.steps + GPU_STEPS) + LEAST_NS
        with suppress(CannotRead):
            new_window = safe_window()
            self._lines = LineSampler(self.writer.path, self.thread, self.task.number, new_window)
            self._lines.start(self._trial_step_ns * (self.steps + 1))
        self._start(time.monotonic_ns(), limit_ns, TRACED_STEPS)
        self._begin_ns = now_ns
        self._does = self._count_step

    def _count_step(self, now_ns: int) -> None:
        self._taken += 1
        self.task.report(self._taken)
        if self._taken >= self.steps:
            self._end_ns = now_ns
            self._gpu = stream_event(self._torch)
            self._does = self._wait_for_gpu
            self._wait_for_gpu(now_ns)

    def _wait_for_gpu(self, now_ns: int) -> None:
        self._more += 1
        if self._gpu is None or self._more > GPU_STEPS or self._gpu.query():
            self._write()

    def _write(self) -> None:
        """Stop, write, let go: what holds the training up."""
        now_ns = time.monotonic_ns()
        result: Optional[Any] = self._stop()
        self.abandon()
        remove_file(self.path)
        if not has_room(os.path.dirname(self.path)):
            self.task.fail("there is no room for the trace in %s" % os.path.dirname(self.path))
            return
        result.save(self.path)  # type: ignore[union-attr]  # a result
        result = None
        held_ns = time.monotonic_ns() - now_ns
        if not os.access(self.path, os.F_OK):
            self.task.fail("the trace could not be written to %s" % os.path.dirname(self.path))
            return
        self._finish(held_ns)

    def _finish(self, held_ns: int) -> None:
        result = {
            "steps": self.steps,
            "wanted": self.wanted,
            "lines": self._lines is not None,
            "limit": self.held_limit_ns // 1_000_000,
            "begin": self._begin_ns,
            "end": self._end_ns,
            "unix": time.time_ns() - time.monotonic_ns(),
            "held": round(held_ns / 1e6, 1),
            "trial": round(self._trials_ns / 1e6, 1),
            "torch": str(getattr(self._torch, "__version__", "")),
        }
        self.task.finish(self.steps, json.dumps(result))


_tracing: Optional[Tracing] = None


def watch(kind: int, value: int = 0, flag: int = 0) -> None:
    """``runtime.emit`` while a trace is taken."""
    tracing = _tracing
    if tracing is None:
        writer = runtime.writer()
        if writer is not None:
            writer.emit(kind, value, flag)
        return
    tracing.writer.emit(kind, value, flag)
    if get_ident() == tracing.thread:
        try:
            tracing.see(kind)
        except Exception as error:
            if is_programs(error):
                raise
            tracing.fail("%s: %s" % (type(error).__name__, error))


def begin(task: Task) -> None:
    """Get ready, at the end of a backward pass of the training thread."""
    global _tracing
    torch, writer = sys.modules.get("torch"), runtime.writer()
    if torch is None or writer is None or _tracing is not None:
        task.refuse("another trace is being taken" if _tracing is not None else "there is no torch")
        return
    reason = refusal(torch)
    if reason is None and not has_room(os.path.dirname(writer.path)):
        reason = "there is no room for a trace in %s" % os.path.dirname(writer.path)
    if reason is not None:
        task.refuse(reason)
        return
    runtime.end_gap()
    dynamo.skip_with_callees(watch)
    tracing = Tracing(task, torch, writer)
    tracing.see(BACKWARD_END)
    _tracing = tracing
    runtime.emit = watch


def end(task: Task) -> None:
    """Stop the trace: nobody wants it any more."""
    if _tracing is not None and _tracing.task is task:
        _tracing.abandon()


def has_room(folder: str) -> bool:
    """True if the folder of the ring has room for a trace."""
    found = os.statvfs(folder)
    return min(found.f_bavail * found.f_frsize, file_size_limit()) >= _ROOM_BYTES
