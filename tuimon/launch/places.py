"""The folder of a run's output, private to the user."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time

from tuimon.agent.private import refusal
from tuimon.errors import LaunchError
from tuimon.text import plain

#: Seconds since its last write after which the output of a run is removed when another starts.
KEEP_S = 14 * 86400


def _folders() -> list[str]:
    """The folders for outputs: below ``$XDG_STATE_HOME`` or ``~/.local/state``, else in the temporary folder."""
    temporary = os.path.join(tempfile.gettempdir(), f"tuimon-{os.getuid()}")
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    folders = [os.path.join(base, "tuimon", "runs"), os.path.join(temporary, "runs")]
    return [folder for folder in folders if os.path.isabs(folder)]


def _make(folder: str) -> None:
    """Make ``folder`` and those above it that are missing, for this user alone. Raises OSError."""
    if not os.path.isdir(folder):
        _make(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def state_directory() -> str:
    """The folder for outputs of runs. Raises LaunchError with the reasons when none can be used."""
    troubles = []
    for folder in _folders():
        try:
            _make(folder)
            trouble = refusal(folder)
        except OSError as error:
            trouble = f"{folder}: {error.strerror}"
        if trouble is None and os.access(folder, os.W_OK | os.X_OK):
            return folder
        troubles.append(trouble or f"{folder} cannot be written")
    raise LaunchError(
        f"there is no place for the run's output: {plain('; '.join(troubles))}",
        "Set XDG_STATE_HOME to a folder that only you can write to, or use --headless.",
    )


def output_path(run_id: str) -> str:
    """Path for the output of a new run; removes the outputs of runs that ended long ago."""
    folder = state_directory()
    oldest = time.time() - KEEP_S
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(".out"):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)
    return os.path.join(folder, f"{run_id}.out")


def own_output(path: str | None, run_id: str | None, owner: int) -> str | None:
    """The output that a process of user ``owner`` names, if it is the file that ``output_path`` made for that run.

    A process may name any file, and what it names is read with tuimon's rights.
    """
    name = f"{run_id}.out"
    if not path or owner != os.getuid() or os.path.basename(path) != name:
        return None
    for folder in _folders():
        own = os.path.join(folder, name)
        if own != path:
            continue
        with contextlib.suppress(OSError, ValueError):
            info = os.lstat(own)
            if stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid() and refusal(folder) is None:
                return own
    return None
