"""Notices of faults of rings: each says what the fault means for the figures and what to do."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tuimon.agent.ring.paths import refused_directories, ring_directory
from tuimon.agent.ring.reader import RingReader
from tuimon.records import Notice
from tuimon.text import plain


def refused_folders(now_s: float) -> list[Notice]:
    """A warning for each folder of rings that somebody else owns, can write to or can replace."""
    instead = ring_directory()
    effect = f"rings are in {instead} instead" if instead else "there are no markers"
    return [
        _warning(
            now_s,
            f"{reason}: {effect}",
            f"Remove {folder}, or have its owner do it; or name a folder of yours in TUIMON_RING_DIR.",
        )
        for folder, reason in refused_directories().items()
    ]


def deleted(now_s: float, readers: Sequence[RingReader]) -> Notice:
    """Rings that lost their names while their processes run; they are read on."""
    return _warning(
        now_s,
        f"the ring of {_processes(readers)} was deleted from {_folder(readers)}, as by a logout with RemoveIPC=yes or"
        " a cleaner of temporary files: its markers are still read, but DataLoader workers that start from now on are"
        " not timed",
        f"Keep {_folder(readers)} from being emptied (RemoveIPC=no in logind.conf), or name a folder that nobody"
        " empties in TUIMON_RING_DIR before the next start.",
    )


def unreadable(now_s: float, readers: Sequence[RingReader]) -> Notice:
    """Rings whose markers end before their processes do: a file was cut short, or its folder fails."""
    return _warning(
        now_s,
        f"the ring of {_processes(readers)} cannot be read any more: its markers end here",
        f"Check the file system of {_folder(readers)}, and what cuts files short there; or name another folder in"
        " TUIMON_RING_DIR before the next start.",
    )


def _processes(readers: Sequence[RingReader]) -> str:
    first = f"process {readers[0].pid}"
    return first if len(readers) == 1 else f"{first} and {len(readers) - 1} more"


def _folder(readers: Sequence[RingReader]) -> str:
    return os.path.dirname(readers[0].path)


def _warning(now_s: float, message: str, hint: str) -> Notice:
    return Notice(t=now_s, pid=0, source="markers", level="warning", message=plain(message), hint=plain(hint))
