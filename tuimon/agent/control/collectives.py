"""Counts the collectives of some steps, if torch's flight recorder records them, as newer versions of torch do.

The recorder is read once, after the last of these steps, without its stacks: some 10 ms for 2,000 collectives. Nothing
is switched on. While a CUDA graph is captured nothing is read, because NCCL's recorder queries events.

The answer's text holds the result as JSON: ``steps``; ``pause`` (ms); ``rows``, one for each kind of collective and
number type: its name, the type, how many there were, and the elements of all of them and of the largest.
"""

import json
import math
import pickle
import sys
import time
from _thread import get_ident
from typing import Any, Dict, List, Optional, Tuple

from .. import runtime
from ..cuda import any_capture
from ..pace import pace
from ..ring.layout import PROFILER_OFF, PROFILER_ON
from .orders import Task, Work

#: By backend: NCCL's recorder, and the recorder of all others.
_RECORDERS = ("_dump_nccl_trace", "_dump_fr_trace")
#: Most rows, those with most elements.
_ROWS = 8
_NAME_CHARACTERS = 32


def begin(task: Task) -> Optional[Work]:
    """The argument is the number of steps."""
    c10d = getattr(sys.modules.get("torch._C"), "_distributed_c10d", None)
    recorders = [each for each in (getattr(c10d, name, None) for name in _RECORDERS) if each is not None]
    if not recorders:
        task.refuse("its torch has no flight recorder")
        return None
    task.needs_steps = True
    return _Steps(task, recorders)


class _Steps(Work):
    """Counts steps by the updates of the thread that began it; without a torch optimizer, by backward passes."""

    def __init__(self, task: Task, recorders: List[Any]) -> None:
        self._task = task
        self._recorders = recorders
        self._thread = get_ident()
        self._passes, self._updates = 0, pace.updates
        self._since_ns = time.time_ns()  # as the recorder tells time

    def step(self) -> None:
        """A backward pass has ended; after the last of the steps, the recorder is read."""
        if get_ident() != self._thread:
            return
        self._passes += 1
        updates = pace.updates - self._updates
        steps = updates if pace.has_optimizer and pace.thread == self._thread else self._passes
        if steps < self._task.argument or any_capture():
            self._task.report(steps)
            return
        begin_ns = time.monotonic_ns()
        runtime.emit(PROFILER_ON)  # the monitor leaves this step's time out of its figures
        rows = counted([entry for recorder in self._recorders for entry in self._entries(recorder)])
        runtime.emit(PROFILER_OFF)
        if not rows:
            self._task.refuse("torch's flight recorder holds no collective of these steps")
            return
        pause_ms = round((time.monotonic_ns() - begin_ns) / 1e6, 1)
        self._task.finish(steps, json.dumps({"steps": steps, "pause": pause_ms, "rows": rows}))

    def _entries(self, recorder: Any) -> List[Dict[str, Any]]:
        """The collectives of these steps; none if the recorder no longer holds all of them."""
        entries = pickle.loads(recorder(True, False, False)).get("entries") or []  # torch's own, of this process
        times_ns = [each["time_created_ns"] for each in entries]
        if not entries or (entries[0]["record_id"] > 0 and min(times_ns) > self._since_ns):
            return []
        return [each for each, time_ns in zip(entries, times_ns) if time_ns > self._since_ns]


def counted(entries: List[Dict[str, Any]]) -> List[Any]:
    """The rows of the answer."""
    found: Dict[Tuple[str, str], List[int]] = {}
    for entry in entries:
        elements = max(_elements(entry["input_sizes"]), _elements(entry["output_sizes"]))
        dtypes = entry["input_dtypes"] or entry["output_dtypes"] or [""]
        # ``nccl:_all_gather_base`` is all_gather, ``nccl:send 0->1`` is send
        name = entry["profiling_name"].rpartition(":")[2].partition(" ")[0].strip("_")
        name = name[: -len("_base")] if name.endswith("_base") else name
        row = found.setdefault((name[:_NAME_CHARACTERS], str(dtypes[0])), [0, 0, 0])
        row[:] = row[0] + 1, row[1] + elements, max(row[2], elements)
    largest = sorted(found.items(), key=lambda item: -item[1][1])
    return [[name, dtype, *row] for (name, dtype), row in largest if name not in ("", "coalesced")][:_ROWS]


def _elements(sizes: List[List[int]]) -> int:
    return sum(math.prod(size) for size in sizes)
