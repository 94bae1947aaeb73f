"""Which GPUs CUDA_VISIBLE_DEVICES names. CUDA C++ Programming Guide, "CUDA Environment Variables"."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

_PCI_ORDER = "PCI_BUS_ID"


class VisibleGpu(Struct, frozen=True, gc=False):
    """A GPU as its driver knows it."""

    uuid: str
    name: str
    instances: tuple[str, ...] = ()  # UUIDs of its MIG instances
    numbered: bool = True  # the driver lists them in PCI order, as CUDA may number them


def named(variable: str | None, order: str | None, gpus: Sequence[VisibleGpu]) -> list[str]:
    """UUIDs of the GPUs and MIG instances that the variable names, in its order; CUDA stops at the first bad entry.

    ``order``: CUDA_DEVICE_ORDER. Without it CUDA numbers the fastest GPU first: numbers are usable only where all GPUs
    are of one model, as that order is then PCI's.
    """
    found = []
    for entry in (variable or "").split(","):
        uuid = _one(entry.strip(), order, gpus)
        if uuid is None:
            break
        found.append(uuid)
    return found


def _one(entry: str, order: str | None, gpus: Sequence[VisibleGpu]) -> str | None:
    if entry.isdecimal():
        counted = all(gpu.numbered for gpu in gpus) and (order == _PCI_ORDER or len({gpu.name for gpu in gpus}) == 1)
        return gpus[int(entry)].uuid if counted and int(entry) < len(gpus) else None
    if entry.startswith("MIG-GPU-"):  # drivers before 470: MIG-GPU-<uuid>/<GPU instance>/<compute instance>
        entry = entry.removeprefix("MIG-").partition("/")[0]
    if entry.startswith("MIG-"):
        return _only(entry, [uuid for gpu in gpus for uuid in gpu.instances])
    return _only(entry, [gpu.uuid for gpu in gpus]) if entry.startswith("GPU-") else None


def _only(prefix: str, uuids: Sequence[str]) -> str | None:
    fitting = [uuid for uuid in uuids if uuid.lower().startswith(prefix.lower())]
    return fitting[0] if len(fitting) == 1 else None
