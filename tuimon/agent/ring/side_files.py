"""Files beside a ring that hold what is too large for it: JSON, replaced as a whole, for its owner alone.

``PID-TICKS.ring.KIND``. Those of processes that are gone are removed with their rings (files.py).

That of stacks holds the samples that the agent takes itself, a window at a time, in the shape of speedscope's files
(https://www.speedscope.app/file-format-schema.json) as far as the monitor reads them: one profile a thread, ``Thread
<OS id> "<name>"``, with the samples in the order they were taken, a list of frame numbers each, root first. Beside
these: ``order`` and ``window``, which say whose it is, ``begin_ns`` and ``end_ns`` (monotonic), ``cpu_ns`` of the
sampling thread, ``instants``, and ``cut``, how many samples were deeper than MAX_DEPTH or of more threads than
MAX_THREADS (``control/stack_windows.py``).
"""

import json
import os
from typing import Any, Dict, Tuple

from ..outside import attempt

#: Bytes of the largest file.
FILE_LIMIT = 2 << 20
STACKS, MEMORY, TRACE = "stacks", "memory", "trace"
#: The stacks of the training thread while it was traced.
LINES = "lines"
#: The text of a notebook's cells.
CELLS = "cells"
#: Left by the monitor that has taken a trace, for the one that writes the log.
TRACED = "traced"


def side_file(ring_path: str, kind: str) -> str:
    """The path of a ring's file of this kind."""
    return "%s.%s" % (ring_path, kind)


def write_file(path: str, content: Dict[str, Any]) -> None:
    """Replace the file at once. Raises OSError, and ValueError when the content is too large."""
    raw = json.dumps(content, separators=(",", ":")).encode("utf-8", "replace")
    if len(raw) > FILE_LIMIT:
        raise ValueError("%d bytes are too many" % len(raw))
    unborn = path + ".new"
    remove_file(unborn)  # of one that was cut short
    handle = os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, raw)
    finally:
        os.close(handle)
    os.rename(unborn, path)


def remove_file(path: str) -> None:
    """Remove a file that may not be there."""
    attempt(os.unlink, path)


#: Bounds of what may be ordered: samples a second, and the length of a window in ms.
MAX_HZ = 20
WINDOW_MS = (200, 20_000)


def pack_sampling(rate_hz: int, window_ms: int) -> int:
    """The argument of the order to sample."""
    return rate_hz | window_ms << 16


def unpack_sampling(argument: int) -> Tuple[int, int]:
    """Samples a second and ms of a window. Raises ValueError when they are out of bounds."""
    rate_hz, window_ms = argument & 0xFFFF, argument >> 16
    if not (1 <= rate_hz <= MAX_HZ and WINDOW_MS[0] <= window_ms <= WINDOW_MS[1]):
        raise ValueError("%d Hz in windows of %d ms" % (rate_hz, window_ms))
    return rate_hz, window_ms
