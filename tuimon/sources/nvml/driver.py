"""NVIDIA's driver, as the GPU source opens it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuimon.sources.nvml import problems
from tuimon.sources.nvml.compute_processes import pid_trust
from tuimon.sources.nvml.library import Library, NvmlError

if TYPE_CHECKING:
    from tuimon.sources.gpus.slot import Slot


class Nvml:
    """NVML."""

    name = "nvml"
    explain = staticmethod(problems.explain)
    no_devices = staticmethod(problems.no_devices)
    hangs = staticmethod(problems.hangs)

    def open(self, clock: Callable[[], float], root: str) -> tuple[Library, list[Slot]]:
        """The library and its GPUs in PCI order. Raises NvmlError."""
        library = Library()
        try:
            trust = pid_trust(library.driver_version())
            count = library.device_count()
        except NvmlError:
            with contextlib.suppress(NvmlError):
                library.close()
            raise
        from tuimon.sources.nvml.slot import NvmlSlot  # eight modules that no machine without a driver needs

        return library, [NvmlSlot(library, index, trust, clock, root) for index in range(count)]
