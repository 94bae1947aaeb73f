"""Where a run's output is kept: a private folder of the user."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time

from tuimon.errors import LaunchError

#: Seconds since its last write after which the output of a run is removed when another starts.
KEEP_S = 14 * 86400


def _make_private(folder: str) -> bool:
    """Make ``folder`` if it is missing; whether it is ours, closed to others, and can be written."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        info = os.lstat(folder)
    except OSError:
        return False
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return False
    if info.st_mode & 0o077:
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    return os.access(folder, os.W_OK | os.X_OK)


def state_directory() -> str:
    """The folder for outputs of runs: below ``$XDG_STATE_HOME`` or ``~/.local/state``, else the temporary one.

    Raises LaunchError when none can be written.
    """
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    tried = [
        os.path.join(base, "tuimon", "runs"),
        os.path.join(tempfile.gettempdir(), f"tuimon-{os.getuid()}", "runs"),
    ]
    for folder in tried:
        if os.path.isabs(folder) and _make_private(folder):
            return folder
    raise LaunchError(
        f"there is no place for the run's output: {' and '.join(tried)} cannot be written",
        "Set XDG_STATE_HOME to a folder that can be written, or use --headless.",
    )


def output_path(run_id: str) -> str:
    """Path for the output of a new run; removes the outputs of runs that ended long ago."""
    folder = state_directory()
    _remove_old(folder)
    return os.path.join(folder, f"{run_id}.out")


def _remove_old(folder: str) -> None:
    oldest = time.time() - KEEP_S
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(".out"):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)
