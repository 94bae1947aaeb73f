"""True if tuimon runs inside a container."""

from __future__ import annotations

import os

from tuimon.proc import procfs

_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")


def in_container() -> bool:
    """True if this process sees the machine from inside a container."""
    if any(os.path.exists(path) for path in _CONTAINER_FILES) or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    cgroup = procfs.read_bytes("/proc/1/cgroup") or b""
    return any(word in cgroup for word in (b"docker", b"kubepods", b"lxc"))
