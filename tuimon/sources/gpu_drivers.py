"""The vendors' drivers of this machine."""

from __future__ import annotations

from tuimon.sources.amdsmi import library as amdsmi
from tuimon.sources.amdsmi.driver import AmdSmi
from tuimon.sources.gpus.source import Driver
from tuimon.sources.nvml import library as nvml
from tuimon.sources.nvml.driver import Nvml


def gpu_drivers() -> list[Driver]:
    """Those whose library is installed; NVML, which then says so, where there is none."""
    if not amdsmi.is_installed():
        return [Nvml()]
    return [Nvml(), AmdSmi()] if nvml.is_installed() else [AmdSmi()]
