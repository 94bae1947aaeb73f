"""The output of ``tuimon --version``, with the versions that a bug report needs."""

from __future__ import annotations

import platform
import sys

from tuimon.launch.resolve import user_python, versions_of_user_python
from tuimon.monitor.versions import version_of
from tuimon.text import plain


def version_lines() -> list[str]:
    """tuimon, what it runs on and samples with, and the torch of the ``python`` that ``tuimon run`` would start."""
    lines = [
        f"tuimon {version_of('tuimon')}",
        f"Python {platform.python_version()} ({plain(sys.executable)})",
        f"platform {plain(platform.platform())}",
        f"py-spy {version_of('py-spy')}",
    ]
    python, found = plain(user_python()), versions_of_user_python()
    if found is None:
        return [*lines, f"torch ? ({python} does not work)"]
    version, torch = found
    return [*lines, f"torch {torch or 'none'} (in {python}, Python {version})"]
