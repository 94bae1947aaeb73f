"""The GPUs of this machine and what NVML can report of them, queried once (``tuimon doctor``)."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from tuimon.sources.notices import Problem
from tuimon.sources.nvml import library as nvml
from tuimon.sources.nvml import mig, problems
from tuimon.sources.nvml.compute_processes import pid_trust
from tuimon.sources.nvml.library import NvmlError
from tuimon.sources.timeouts import CallWithTimeout
from tuimon.text import plain

#: Limit of all the queries together: loading the driver takes seconds, with many GPUs tens of seconds.
_CALL_TIMEOUT_S = 60.0


class Inventory(NamedTuple):
    """The GPUs that answer, and which figures they support."""

    driver: str
    gpus: int
    instances: int  # MIG
    with_activity: int  # GPUs that report how busy their SMs, tensor cores and memory are (GPM)
    pids_known: bool  # whether the driver's pids are valid here


def inventory() -> Inventory | Problem:
    """Query the driver; a Problem where there is none, or where it does not answer."""
    calls: CallWithTimeout[Inventory | Problem] = CallWithTimeout("tuimon-nvml")
    return calls.call(_query_inventory, _CALL_TIMEOUT_S) or problems.hangs()


def _query_inventory() -> Inventory | Problem:
    try:
        library = nvml.Library()
    except NvmlError as error:
        return problems.explain(error)
    try:
        driver = plain(str(library.call(library.api.nvmlSystemGetDriverVersion)))
        handles = [library.handle(index) for index in range(library.device_count())]
        if not handles:
            return problems.no_devices()
        support = [handle.query("nvmlGpmQueryDeviceSupport") for handle in handles]
        return Inventory(
            driver=driver,
            gpus=len(handles),
            instances=sum(len(list(mig.instances(handle))) for handle in handles if mig.is_cut(handle)),
            with_activity=sum(bool(answer and answer.isSupportedDevice) for answer in support),
            pids_known=pid_trust(library.driver_version()).lists,
        )
    except NvmlError as error:
        return problems.explain(error)
    finally:
        with contextlib.suppress(NvmlError):
            library.close()
