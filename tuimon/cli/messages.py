"""Messages for people, on stderr: stdout is for data."""

from __future__ import annotations

import contextlib
import sys


def write_message(text: str) -> None:
    """Write a line; a stderr that is closed costs the message and nothing else."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
