"""NVIDIA's driver: NVML through nvidia-ml-py (``import pynvml``), its errors explained, and its figures.

Never called: ``nvmlDeviceGetPcieThroughput``, which blocks 20 ms a direction.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, ClassVar, NamedTuple

from tuimon.installation import install_command
from tuimon.proc.processes import has_nvidia_gpu, in_container
from tuimon.sources.base import Problem
from tuimon.sources.gpus.driver import Device, DriverError, Handle, VendorLibrary
from tuimon.sources.gpus.nvml_device import MigDevice, NvmlDevice, instances, pid_trust
from tuimon.text import plain

#: The driver's library; pynvml tries no other on Linux.
_NAME = "libnvidia-ml.so.1"


def _container_hint() -> str | None:
    is_hidden = in_container() and has_nvidia_gpu()
    return "Start the container with its GPUs: docker run --gpus all" if is_hidden else None


class NvmlCode(IntEnum):
    """Return codes (nvml.h, nvmlReturn_t), and our own for a missing Python package."""

    NO_PACKAGE = 0
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25


class Nvml(VendorLibrary):
    """NVML."""

    name, says, vendor, numbered = "nvml", "NVML", "NVIDIA", True
    tool, figures = "nvidia-smi", "GPU figures"
    PROBLEMS: ClassVar = {
        NvmlCode.LIBRARY_NOT_FOUND: ("no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)", _container_hint),
        NvmlCode.NO_PACKAGE: (
            "no GPU figures: nvidia-ml-py is not installed",
            partial(install_command, "nvidia-ml-py"),
        ),
        NvmlCode.DRIVER_NOT_LOADED: (
            "the NVIDIA driver is not loaded",
            lambda: _container_hint() or "sudo modprobe nvidia",
        ),
        NvmlCode.NO_PERMISSION: (
            "no permission to query the NVIDIA driver",
            "Check who may read and write /dev/nvidia*",
        ),
        NvmlCode.VERSION_MISMATCH: (
            "no GPU figures: the NVIDIA driver and its library have different versions",
            "The driver was updated while it was in use: restart the machine (or the container)",
        ),
    }
    FATAL: ClassVar = frozenset({NvmlCode.GPU_IS_LOST, NvmlCode.RESET_REQUIRED})
    NEVER: ClassVar = frozenset(
        {
            NvmlCode.NOT_SUPPORTED,
            NvmlCode.NO_PERMISSION,
            NvmlCode.FUNCTION_NOT_FOUND,
            NvmlCode.ARGUMENT_VERSION_MISMATCH,
        }
    )
    NOTHING_NEW: ClassVar = frozenset({NvmlCode.NOT_FOUND, NvmlCode.TIMEOUT})
    NOT_SUPPORTED, SHUT_DOWN = NvmlCode.NOT_SUPPORTED, "nvmlShutdown"

    def __init__(self) -> None:
        """Load and initialise it. Raises DriverError."""
        if not self.is_installed():
            raise DriverError(NvmlCode.LIBRARY_NOT_FOUND, f"{_NAME} not found")
        try:
            import pynvml  # costs 15 ms and 2 MB and is of no use on most machines
        except ImportError as error:
            raise DriverError(NvmlCode.NO_PACKAGE, str(error)) from error
        self.api = pynvml
        self.call(pynvml.nvmlInit)

    @staticmethod
    def is_installed() -> bool:
        """True if the library can be loaded; it then stays loaded, as if by pynvml."""
        try:
            ctypes.CDLL(_NAME)
        except OSError:
            return False
        return True

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  (what pynvml returns has no types)
        """Any function of pynvml. Raises DriverError."""
        try:
            return function(*arguments)
        except self.api.NVMLError as error:
            raise DriverError(int(getattr(error, "value", 999)), str(error)) from error

    def device_count(self) -> int:
        """Number of GPUs; in a container, of those visible to it."""
        return int(self.call(self.api.nvmlDeviceGetCount))

    def driver_version(self) -> tuple[int, ...]:
        """``(535, 113, 1)``; empty when unknown."""
        try:
            text = str(self.call(self.api.nvmlSystemGetDriverVersion))
        except DriverError:
            return ()
        return tuple(int(part) for part in text.split(".") if part.isdecimal())

    def handle(self, index: int) -> Handle:
        """One GPU by PCI order. Raises DriverError when it does not answer."""
        return Handle(self, self.call(self.api.nvmlDeviceGetHandleByIndex, index))

    def parts(self, handle: Handle) -> list[Handle]:
        """Its MIG instances."""
        return instances(handle)

    def devices(self, handle: Handle, index: int, parts: Sequence[Handle]) -> Iterator[Device]:
        """The GPU of this index, then its MIG instances."""
        trust = pid_trust(self.driver_version())
        yield NvmlDevice(handle, index, None if parts else trust)
        yield from (MigDevice(part, handle, index, trust) for part in parts)

    def uuid_of(self, raw: object) -> str:
        """The UUID of a GPU or MIG instance."""
        return str(self.call(self.api.nvmlDeviceGetUUID, raw))

    @classmethod
    def no_devices(cls) -> Problem:
        """The problem of a driver that works but counts no GPU."""
        return super().no_devices()._replace(hint=_container_hint())

    def explain_device(self, what: str, error: DriverError, xids: Sequence[int]) -> Problem:
        """An error of one GPU, with the Xid errors that came just before."""
        if error.code == NvmlCode.GPU_IS_LOST:
            hint = "dmesg shows the Xid error; a lost GPU usually needs a restart of the machine"
            latest = f" (Xid {', '.join(map(str, xids))})" if xids else ""
            return Problem(f"{what} is lost: it does not answer any more{latest}", hint)
        if error.code == NvmlCode.RESET_REQUIRED:
            hint = "When nothing uses it: sudo nvidia-smi --gpu-reset"
            return Problem(f"{what} needs a reset before it can be used", hint)
        return super().explain_device(what, error, xids)


class Inventory(NamedTuple):
    """The GPUs that answer, and which figures they support."""

    driver: str
    gpus: int
    instances: int  # MIG
    with_activity: int  # GPUs that report how busy their SMs, tensor cores and memory are (GPM)
    pids_known: bool  # True if the driver's pids are valid here


def inventory(library: Nvml, number: int) -> Inventory:
    """The inventory of a driver with this number of GPUs (``tuimon doctor``). Raises DriverError."""
    handles = [library.handle(index) for index in range(number)]
    support = [handle.query("nvmlGpmQueryDeviceSupport") for handle in handles]
    return Inventory(
        driver=plain(str(library.call(library.api.nvmlSystemGetDriverVersion))),
        gpus=number,
        instances=sum(len(instances(handle)) for handle in handles),
        with_activity=sum(bool(answer and answer.isSupportedDevice) for answer in support),
        pids_known=pid_trust(library.driver_version()).lists,
    )
