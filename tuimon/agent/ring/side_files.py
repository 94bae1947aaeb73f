"""Files beside a ring that hold what is too large for it: JSON, replaced as a whole, for its owner alone.

``PID-TICKS.ring.KIND``. Those of processes that are gone are removed with their rings (files.py).
"""

import json
import os
from typing import Any, Dict

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
