"""What NVML can tell on this machine, asked once (``tuimon doctor``)."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from tuimon.sources.notices import Problem
from tuimon.sources.nvml import errors, mig
from tuimon.sources.nvml import library as nvml
from tuimon.sources.nvml.library import Library, NvmlError
from tuimon.sources.nvml.processes import pid_trust
from tuimon.sources.timeouts import CallWithTimeout
from tuimon.text import plain

#: Waking the driver takes seconds, with many GPUs tens of them.
_PATIENCE_S = 60.0


class Census(NamedTuple):
    """The GPUs that answer, and what is missing of their figures."""

    driver: str
    gpus: int
    instances: int  # MIG
    with_activity: int  # GPUs that tell how busy SMs, tensor cores and memory are (GPM)
    pids_known: bool  # whether the driver's pids are pids here


def census() -> Census | Problem:
    """Ask the driver; a trouble where there is nothing to ask, or where it does not answer."""
    return CallWithTimeout[Census | Problem]("tuimon-nvml").call(_census, _PATIENCE_S) or errors.hangs()


def _census() -> Census | Problem:
    try:
        library = nvml.Library()
    except NvmlError as error:
        return errors.explain(error)
    try:
        return _count(library)
    except NvmlError as error:
        return errors.explain(error)
    finally:
        with contextlib.suppress(NvmlError):
            library.close()


def _count(library: Library) -> Census | Problem:
    driver = plain(str(library.call(library.api.nvmlSystemGetDriverVersion)))
    handles = [library.handle(index) for index in range(library.device_count())]
    if not handles:
        return errors.no_devices()
    support = [handle.ask("nvmlGpmQueryDeviceSupport") for handle in handles]
    return Census(
        driver=driver,
        gpus=len(handles),
        instances=sum(len(list(mig.instances(handle))) for handle in handles if mig.is_cut(handle)),
        with_activity=sum(bool(answer and answer.isSupportedDevice) for answer in support),
        pids_known=pid_trust(library.driver_version()).lists,
    )
