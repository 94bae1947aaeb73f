"""Names of the files of one log: ``run.jsonl`` is the newest, before it come ``run.1.jsonl``, ``run.2.jsonl``."""

from __future__ import annotations

import os
import re

SUFFIX = ".jsonl"
#: A log whose name ends so is compressed: 1 to 2 MB an hour of one rank in place of 5 to 13.
COMPRESSED = ".zst"
_PART = re.compile(r"\.([1-9]\d{0,8})$")


def is_compressed(path: str) -> bool:
    """True if a log of this name is to be compressed."""
    return path.endswith(COMPRESSED)


def is_log_name(name: str) -> bool:
    """True if a file of this name in a folder is taken for a log."""
    return name.endswith((SUFFIX, SUFFIX + COMPRESSED))


def part_path(path: str, number: int) -> str:
    """The file of part ``number`` of the log at ``path``."""
    stem, ending = _split(path)
    return f"{stem}.{number}{ending}"


def part_paths(path: str) -> list[tuple[int, str]]:
    """The files beside a log that have the name of a part of it, with its number, in order. Raises OSError."""
    stem, ending = _split(os.path.basename(path))
    folder = os.path.dirname(path)
    found: list[tuple[int, str]] = []
    for name in os.listdir(folder or "."):
        if name.startswith(stem) and name.endswith(ending):
            match = _PART.fullmatch(name[len(stem) : len(name) - len(ending)])
            if match is not None:
                found.append((int(match[1]), os.path.join(folder, name)))
    return sorted(found)


def log_of_part(name: str) -> str | None:
    """The log that a file may be a part of, by its name; None where its name has no number."""
    stem, ending = _split(name)
    bare = _PART.sub("", stem)
    return bare + ending if bare != stem else None


def _split(path: str) -> tuple[str, str]:
    """Stem and ending: ``("run", ".jsonl.zst")``."""
    bare = path.removesuffix(COMPRESSED)
    stem, ending = os.path.splitext(bare)
    if not ending or _PART.fullmatch(ending):  # run.1: its number is not its ending
        stem, ending = bare, ""
    return stem, ending + path[len(bare) :]
