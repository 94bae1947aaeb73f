"""Whether tuimon runs inside a container, and which GPUs the machine has outside it."""

from __future__ import annotations

import glob
import os

from tuimon.proc import procfs

_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
#: The vendor of each PCI device: a container sees those of the machine, whether or not it may use them.
VENDORS = "/sys/bus/pci/devices/*/vendor"
_NVIDIA = b"0x10de"


def in_container() -> bool:
    """True if this process sees the machine from inside a container."""
    if any(os.path.exists(path) for path in _CONTAINER_FILES) or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    cgroup = procfs.read_bytes("/proc/1/cgroup") or b""
    return any(word in cgroup for word in (b"docker", b"kubepods", b"lxc"))


def has_nvidia_gpu() -> bool:
    """True if the machine has a PCI device of NVIDIA's, such as a GPU, driver or not."""
    return any((procfs.read_bytes(path) or b"").strip() == _NVIDIA for path in glob.iglob(VENDORS))
