"""From the full screen to a process without a terminal."""

from __future__ import annotations

import os
import select

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
