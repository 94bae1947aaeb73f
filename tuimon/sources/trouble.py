"""Why a source shows nothing, and what a user can do about it."""

from __future__ import annotations

import os
from typing import NamedTuple

from tuimon.proc import procfs

_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")


class Trouble(NamedTuple):
    """What is wrong, and the next step.

    ``passing``: it may go away by waiting. ``expected``: no reason to worry, as on a machine without a GPU.
    """

    message: str
    hint: str | None = None
    passing: bool = False
    expected: bool = False


def in_container() -> bool:
    """Whether we look at the machine from inside a container."""
    if any(os.path.exists(path) for path in _CONTAINER_FILES) or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    cgroup = procfs.read_bytes("/proc/1/cgroup") or b""
    return any(word in cgroup for word in (b"docker", b"kubepods", b"lxc"))
