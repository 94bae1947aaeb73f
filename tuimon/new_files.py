"""Files that tuimon writes: for their owner alone, as they hold command lines, source lines and paths."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping

from tuimon.text import plain

#: Files of their owner alone.
PRIVATE_MODE = 0o600


def create_private(path: str) -> int:
    """Create a file for its owner alone; returns a handle to write to it. Raises OSError, also if the path exists."""
    # O_EXCL follows no symbolic link either
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_MODE)


def link(path: str, name: str) -> bool:
    """Give a file a second name; False where the file system cannot. Raises OSError where something has that name."""
    try:
        os.link(path, name, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(name):
            raise
        return False
    return True


def folder_hint(path: str) -> str | None:
    """How to make the folder that a file needs and lacks; None if the folder exists, or cannot be made."""
    folder = parent = os.path.dirname(path) or "."
    if os.path.isdir(folder):
        return None
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent) or "."
    # a file system without blocks, such as /proc, holds nothing that is not its own
    is_open = os.path.isdir(parent) and os.access(parent, os.W_OK) and os.statvfs(parent).f_blocks > 0
    return f"Make the folder first: mkdir -p {plain(folder)}" if is_open else None


def write_new(stem: str, contents: Mapping[str, str]) -> list[str]:
    """Write ``STEM + ending`` for each ending and return their paths. Nothing is overwritten: STEM may get a number.

    Raises OSError, and then leaves no file behind.
    """
    base = stem
    for number in itertools.count(2):
        with contextlib.suppress(FileExistsError):
            return _write_all({base + ending: text for ending, text in contents.items()})
        base = f"{stem}-{number}"
    return []


def _write_all(contents: Mapping[str, str]) -> list[str]:
    made: list[str] = []
    try:
        for path, text in contents.items():
            handle = create_private(path)
            made.append(os.path.abspath(path))
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError:
        for path in made:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise
    return made
