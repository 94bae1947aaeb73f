"""Rings without a name any more: their process still has them mapped, and a descriptor that can be opened."""

from __future__ import annotations

import os
from contextlib import suppress

from msgspec import Struct

from tuimon.proc.processes import DELETED


class DeletedRing(Struct, frozen=True, gc=False):
    """The path that a ring had, and what it can be opened through."""

    path: str
    through: str


def deleted_rings(pid: int, start_ticks: int) -> list[DeletedRing]:
    """The process's own deleted rings; none where its descriptors may not be read. About 1 us a descriptor."""
    folder = f"/proc/{pid}/fd"
    name = f"{pid}-{start_ticks}.ring{DELETED}"
    found = []
    with suppress(OSError):
        for number in os.listdir(folder):
            with suppress(OSError):
                target = os.readlink(f"{folder}/{number}")
                if os.path.basename(target) == name:
                    found.append(DeletedRing(target.removesuffix(DELETED), f"{folder}/{number}"))
    return found
