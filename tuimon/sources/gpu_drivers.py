"""The GPUs of this machine, by the vendors' drivers."""

from __future__ import annotations

from tuimon.sources.amdsmi import library as amdsmi
from tuimon.sources.amdsmi.driver import AmdSmi
from tuimon.sources.gpus.source import GpuSource
from tuimon.sources.nvml import library as nvml
from tuimon.sources.nvml.driver import Nvml
from tuimon.sources.process_table import ProcessTable


def gpu_sources(table: ProcessTable, interval_s: float) -> list[GpuSource]:
    """A source for each driver whose library is installed; NVML, which then says so, where there is none.

    Beside NVML, AMD's reports under a name of its own: neither takes back what the other has to say.
    """
    if not amdsmi.is_installed():
        return [GpuSource(Nvml(), table, interval_s)]
    if not nvml.is_installed():
        return [GpuSource(AmdSmi(), table, interval_s)]
    return [GpuSource(Nvml(), table, interval_s), GpuSource(AmdSmi(), table, interval_s, name=AmdSmi.name)]
