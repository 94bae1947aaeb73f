"""Standard streams that were closed when tuimon was started (``>&-``, as some supervisors do)."""

from __future__ import annotations

import os
import sys


def replace_closed_streams() -> None:
    """Put /dev/null in the place of each, so that no file of ours gets its number and nobody meets None.

    A training inherits none of these: its streams are closed as they are without tuimon.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest number that is free: the stream's own
            setattr(sys, name, open(handle, mode, encoding="utf-8"))  # noqa: SIM115  (open to the end)
