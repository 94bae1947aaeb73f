"""Counts the calls that read or move tensors, by line, in two steps of the training thread.

Python calls a profile function (``sys.setprofile``) meanwhile, at each call of this thread: 0.6 us each. The smaller
number of both steps counts, so that work of some steps only, such as logging or an evaluation, drops out. Nothing is
counted while the program is profiled, traced or debugged; with torch.compile, as Dynamo and observers of calls disturb
each other (https://github.com/pytorch/pytorch/issues/158164); and before Python 3.11, which keeps all variables of a
frame alive for a profile function, and writes them back. ``float(x)``, ``if x`` and ``x[mask]`` are not calls of
Python.

The answer's text is JSON: ``[name, file, line, calls]`` for each line that makes several calls of a name in a step.
"""

import json
import os
import sys
from _thread import get_ident
from time import monotonic_ns
from types import FrameType, MethodType
from typing import Any, Dict, List, Optional, Tuple

from .. import runtime
from ..own_threads import has_gil
from ..pace import pace
from ..ring.control_words import Command
from ..ring.layout import PROFILER_OFF, PROFILER_ON
from ..torch_compat import dynamo
from ..torch_compat.compilations import reading
from .orders import Task, Work, orders

#: Methods of tensors, and one of streams and events.
_METHODS = frozenset({"item", "tolist", "numpy", "cpu", "cuda", "to", "copy_", "nonzero", "synchronize"})
#: The function behind ``torch.cuda.synchronize``.
_SYNCHRONIZE = "_cuda_synchronize"
#: The classes of ``torch._C`` that streams and events extend, if torch was built with them.
_BASES = ("_CudaStreamBase", "_CudaEventBase")
#: Most events and most time of both steps; the clock is read once in this many events.
_MAX_EVENTS, _MAX_NS, _LOOK_EVENTS = 200_000, 60_000_000_000, 1024
#: Most characters of an answer: the ring keeps 1,024 bytes of a text.
_CHARACTERS = 1000


def begin(task: Task) -> Optional[Work]:
    """The argument is the number of updates in a step."""
    counting = _Counting(task, sys.modules["torch"])
    dynamo.skip_with_callees(counting.see, counting.add, counting.end)
    task.needs_steps = True
    return counting


def _counting_now() -> "Optional[_Counting]":
    """The work whose profile function this thread has."""
    profile = sys.getprofile()
    owner = profile.__self__ if type(profile) is MethodType else None
    return owner if isinstance(owner, _Counting) else None


def _leave_child() -> None:
    """Remove our profile function from a forked child."""
    if _counting_now() is not None:
        sys.setprofile(None)


runtime.in_child.append(_leave_child)


class _Counting(Work):
    """Steps begin at the first backward pass after an update by a torch optimizer."""

    def __init__(self, task: Task, torch: Any) -> None:
        self._task = task
        classes = (torch.Tensor, *(getattr(torch._C, name) for name in _BASES if hasattr(torch._C, name)))
        self._owners = frozenset(map(id, classes))  # compared by id: a class may have an __eq__ of its own
        folders = map(os.path.dirname, (torch.__file__, os.__file__, runtime.__file__))
        self._libraries = (*(folder + os.sep for folder in folders), "<frozen ")
        self._thread = get_ident()
        self._begun = pace.updates  # when the step began
        self._steps: List[Dict[Tuple[str, str, int], int]] = []  # calls by name, file and line
        self._left, self._until_ns = _MAX_EVENTS, 0
        self._reason = "the program has interrupted it"  # why the function was removed between two passes
        self._is_marked = False  # the monitor leaves the times of steps out of its figures from now on

    def step(self) -> None:
        """A backward pass has ended."""
        if not get_ident() == self._thread == pace.thread:
            return
        passed = pace.updates - self._begun
        if not self._steps:
            if passed and Command.TRACE not in orders.tasks:
                self._start()
        elif _counting_now() is not self:
            self.end(self._reason)
        elif Command.TRACE in orders.tasks or reading.newest is not None:
            self.end("a trace or a compilation has begun")
        elif passed >= self._task.argument:
            self._begun += passed
            if len(self._steps) == 2:
                self.end()
                self._task.finish(2, self._answer())
            else:
                self._steps.append({})

    def end(self, refusal: str = "") -> None:
        """Count no more; if this is another thread, our function removes itself at its next call."""
        self._left = 0
        if get_ident() == self._thread:
            if _counting_now() is self:
                sys.setprofile(None)
            if self._is_marked:
                self._is_marked = False
                runtime.emit(PROFILER_OFF)
        if refusal:
            self._task.refuse(refusal)

    def see(self, frame: FrameType, event: str, called: Any) -> None:
        """Python's profile function meanwhile; Python removes it where an exception of a signal handler arrives."""
        self._left -= 1
        late = not self._left % _LOOK_EVENTS and (self._task.is_over or monotonic_ns() > self._until_ns)
        if self._left < 0 or late:
            self._reason = "two steps take too long" if late else "two steps make too many calls"
            self.end()
        elif event == "c_call":
            name = called.__name__
            if name == _SYNCHRONIZE:
                self.add("synchronize", frame)
            elif name in _METHODS and not self._owners.isdisjoint(map(id, type(called.__self__).__mro__)):
                self.add(name, frame)

    def add(self, name: str, frame: Optional[FrameType]) -> None:
        """Count a call at the innermost user line."""
        while frame is not None:
            file = frame.f_code.co_filename
            if "-packages/" not in file and not file.startswith(self._libraries):
                place = (name, file, frame.f_lineno or 0)
                self._steps[-1][place] = self._steps[-1].get(place, 0) + 1
                return
            frame = frame.f_back

    def _start(self) -> None:
        monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on; it has six tools
        tools = [sys.getprofile(), sys.gettrace(), *(map(monitoring.get_tool, range(6)) if monitoring else ())]
        if any(tool is not None for tool in tools):
            self.end("the program is profiled, traced or debugged")
        elif reading.newest is not None:
            self.end("the program uses torch.compile")
        elif sys.version_info < (3, 11) or not has_gil():
            self.end("this Python cannot be profiled without side effects")
        else:
            self._begun = pace.updates
            self._until_ns = monotonic_ns() + _MAX_NS
            self._steps.append({})
            self._is_marked = True
            runtime.emit(PROFILER_ON)
            sys.setprofile(self.see)

    def _answer(self) -> str:
        """The rows with most calls, as many as fit."""
        first, second = self._steps
        counts = [(min(calls, second[place]), place) for place, calls in first.items() if place in second]
        rows = [[*place, calls] for calls, place in sorted(counts, reverse=True) if calls > 1]
        texts, room = [], _CHARACTERS
        for text in map(json.dumps, rows):
            room -= len(text) + 2
            if room >= 0:
                texts.append(text)
        return "[" + ", ".join(texts) + "]"
