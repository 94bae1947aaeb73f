"""NUMA nodes of the machine: their cores, and the nodes near a PCI device, as listed in sysfs.

Formats: Documentation/ABI/stable/sysfs-devices-node and Documentation/ABI/testing/sysfs-bus-pci in the Linux sources.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from tuimon.proc import procfs

_NODES = "/sys/devices/system/node"
_NODE = re.compile(r"node(\d+)$")
_BUS_ID = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])$")
#: Least distance of a node on another socket, by firmware; on the same socket 11 to 16, of itself 10 (ACPI, SLIT).
_OTHER_SOCKET = 20
#: Highest number that is believed: no machine has more, but a list may name any.
_MOST = 1 << 16


def core_numbers(text: str) -> frozenset[int]:
    """The numbers in a list such as ``0-3,8``; empty if the text is not a list."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) >= _MOST:
            return frozenset()
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def core_list(numbers: Collection[int]) -> str:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def cores_by_node(root: str = "") -> dict[int, frozenset[int]]:
    """The cores of each NUMA node that has any; empty if the kernel lists none. ``root``: the folder with /sys."""
    found = {node: core_numbers(procfs.read_text(f"{root}{_NODES}/node{node}/cpulist")) for node in _nodes(root)}
    return {node: cores for node, cores in found.items() if cores}


def nodes_near(bus_id: str, root: str = "") -> list[int] | None:
    """The NUMA node of a PCI device, then the other nodes of its socket; None if the kernel does not know it.

    ``bus_id``: as NVML writes it, ``00000000:3B:00.0``.
    """
    match = _BUS_ID.match(bus_id)
    if match is None:
        return None
    text = procfs.read_text(f"{root}/sys/bus/pci/devices/{int(match[1], 16):04x}:{match[2].lower()}/numa_node").strip()
    if not text.isdecimal():  # -1: the firmware does not know
        return None
    own = int(text)
    distances = procfs.read_text(f"{root}{_NODES}/node{own}/distance").split()
    near = [
        node
        for node, distance in zip(_nodes(root), distances, strict=False)
        if node != own and distance.isdecimal() and int(distance) < _OTHER_SOCKET
    ]
    return [own, *near]


def _nodes(root: str) -> list[int]:
    """The numbers of the nodes, in the order in which a node lists its distances."""
    try:
        names = os.listdir(root + _NODES)
    except OSError:
        return []
    return sorted(int(match[1]) for name in names if (match := _NODE.match(name)) is not None)
