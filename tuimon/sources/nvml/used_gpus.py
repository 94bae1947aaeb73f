"""Which GPUs the run uses: as its processes report, as the driver lists them, or as CUDA_VISIBLE_DEVICES names them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tuimon.proc.processes import environment
from tuimon.proc.ring_facts import RingFacts
from tuimon.records import Gpu, bare_uuid
from tuimon.sources.nvml.visible_devices import VisibleGpu, named
from tuimon.sources.process_table import ProcessTable


class UsedGpus:
    """The GPUs that the run uses, by bare UUID."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._reported: set[str] = set()  # by the run's processes
        self._named: set[str] = set()  # by CUDA_VISIBLE_DEVICES
        self._computing: set[str] = set()  # with a process of the run, as the driver lists them

    @property
    def known(self) -> bool:
        """Whether any GPU is in use."""
        return bool(self._reported or self._named or self._computing)

    def uses(self, gpu: VisibleGpu) -> bool:
        """Whether the run uses this GPU, or an instance of it."""
        uuids = {bare_uuid(uuid) for uuid in (gpu.uuid, *gpu.instances)}
        return not uuids.isdisjoint(self._reported | self._named | self._computing)

    def update(self, found: Sequence[Gpu], gpus: Sequence[VisibleGpu | None]) -> list[Gpu]:
        """Update from new records; returns them with ``chosen`` set. ``gpus``: by index, None if one never answered."""
        facts = list(self._table.facts.values())
        if facts or not (self._reported or self._named):  # once the run has ended, the GPUs that it used stay so
            self._reported = {bare_uuid(uuid) for each in facts for uuid in each.gpu_uuids}
            self._named = set() if self._reported else self._by_variable(facts, gpus)
        pids = set(self._table.pids())
        self._computing -= {bare_uuid(gpu.uuid) for gpu in found}
        self._computing |= {bare_uuid(gpu.uuid) for gpu in found if pids.intersection(gpu.pids)}
        return [self._marked(gpu) for gpu in found]

    def _marked(self, gpu: Gpu) -> Gpu:
        return msgspec.structs.replace(gpu, chosen=True) if bare_uuid(gpu.uuid) in self._named else gpu

    def _by_variable(self, facts: Sequence[RingFacts], gpus: Sequence[VisibleGpu | None]) -> set[str]:
        answering = [gpu for gpu in gpus if gpu is not None]
        if len(answering) < len(gpus):  # the variable's numbers would be wrong
            return set()
        uuids: set[str] = set()
        for each in facts or [self._environment()]:
            if each.cuda_visible_devices is not None:
                uuids.update(named(each.cuda_visible_devices, each.cuda_device_order, answering))
        return {bare_uuid(uuid) for uuid in uuids}

    def _environment(self) -> RingFacts:
        """What the run was started with, until a process with torch reports its own."""
        environ = environment(self._table.root_pid)
        return RingFacts(
            cuda_visible_devices=environ.get("CUDA_VISIBLE_DEVICES"), cuda_device_order=environ.get("CUDA_DEVICE_ORDER")
        )
