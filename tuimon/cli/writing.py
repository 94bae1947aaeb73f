"""Where a command writes its text: stdout, or a file of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from tuimon.errors import TuimonError, UsageError
from tuimon.new_files import folder_hint, open_private
from tuimon.text import plain


def refuse_to_replace(logs: Iterable[str], output: str | None) -> None:
    """Raises UsageError where ``-o`` names one of the logs that are read."""
    if output is not None and os.path.exists(output):
        for log in logs:
            if os.path.exists(log) and os.path.samefile(log, output):
                raise UsageError(f"{plain(output)} is the log itself", "Give -o another name")


def write_text(text: str, path: str | None) -> None:
    """Write to a file, or to stdout for None and ``-``. Raises TuimonError."""
    if path is None or path == "-":
        sys.stdout.write(text)
        return
    try:
        with open_private(path) as file:
            file.write(text)
    except OSError as error:
        raise TuimonError(f"{plain(path)} cannot be written: {error.strerror}", folder_hint(path)) from error
