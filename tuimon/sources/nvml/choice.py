"""Which GPUs the run uses: as its processes say, as the driver says of them, or as CUDA_VISIBLE_DEVICES says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tuimon.proc import procfs
from tuimon.records import Gpu, bare_uuid
from tuimon.sources.nvml.visible_devices import Visible, named
from tuimon.sources.run_processes import Targets


class GpuChoice:
    """What was learned so far."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._told: set[str] = set()  # bare UUIDs, here and below
        self._named: set[str] = set()
        self._computing: set[str] = set()

    @property
    def known(self) -> bool:
        """Whether any GPU is in use."""
        return bool(self._told or self._named or self._computing)

    def uses(self, gpu: Visible) -> bool:
        """Whether the run uses this GPU, or an instance of it."""
        uuids = {bare_uuid(uuid) for uuid in (gpu.uuid, *gpu.instances)}
        return not uuids.isdisjoint(self._told | self._named | self._computing)

    def learn(self, found: Sequence[Gpu], gpus: Sequence[Visible | None]) -> list[Gpu]:
        """Take in a look; ``found`` with ``chosen`` set. ``gpus`` is in PCI order, None for one that never answered."""
        facts = list(self._targets.facts.values())
        self._told = {bare_uuid(str(uuid)) for fact in facts for uuid in _list(fact.get("gpu_uuids")) if uuid}
        self._named = set() if self._told else self._by_variable(facts, gpus)
        pids = set(self._targets.pids())
        self._computing -= {bare_uuid(gpu.uuid) for gpu in found}
        self._computing |= {bare_uuid(gpu.uuid) for gpu in found if pids.intersection(gpu.pids)}
        return [self._marked(gpu) for gpu in found]

    def _marked(self, gpu: Gpu) -> Gpu:
        return msgspec.structs.replace(gpu, chosen=True) if bare_uuid(gpu.uuid) in self._named else gpu

    def _by_variable(self, facts: Sequence[Mapping[str, object]], gpus: Sequence[Visible | None]) -> set[str]:
        answering = [gpu for gpu in gpus if gpu is not None]
        if len(answering) < len(gpus):  # numbers would count wrong
            return set()
        uuids: set[str] = set()
        for fact in facts or [self._environment()]:
            variable, order = fact.get("cuda_visible_devices"), fact.get("cuda_device_order")
            if isinstance(variable, str):
                uuids.update(named(variable, order if isinstance(order, str) else None, answering))
        return {bare_uuid(uuid) for uuid in uuids}

    def _environment(self) -> dict[str, object]:
        """What the run was started with, until a process with torch says more."""
        environ = procfs.read_environ(self._targets.root)
        return {name.lower(): environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
