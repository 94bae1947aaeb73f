"""The standard streams: closed when tuimon was started (``>&-``), on a lost terminal; and messages for people."""

from __future__ import annotations

import contextlib
import os
import select
import sys


def replace_closed_streams() -> None:
    """Put /dev/null in the place of each, so that no file of ours gets its number and nobody meets None.

    A training inherits none of these: its streams are closed as they are without tuimon.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest number that is free: the stream's own
            setattr(sys, name, open(handle, mode, encoding="utf-8"))  # noqa: SIM115  (open to the end)


def write_message(text: str) -> None:
    """Write a line on stderr, as stdout is for data; a stderr that is closed costs the message and nothing else."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


#: Seconds that last words wait for a terminal.
LAST_WORDS_S = 0.5


def takes_output() -> bool:
    """True if the terminal takes output: one at the far end of a connection that stalls would block us for hours."""
    try:
        return bool(select.select([], [1], [], LAST_WORDS_S)[1])
    except OSError:
        return False


def let_go_of_terminal() -> None:
    """Read from and write to nothing from now on; the numbers of the standard streams stay taken."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
