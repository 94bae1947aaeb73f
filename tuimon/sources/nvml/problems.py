"""Explains NVML's errors to a user."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.installation import install_command
from tuimon.proc.processes import has_nvidia_gpu, in_container
from tuimon.sources.gpus.handle import DriverError
from tuimon.sources.notices import Problem
from tuimon.sources.nvml.library import (
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    NO_PACKAGE,
    NO_PERMISSION,
    RESET_REQUIRED,
)
from tuimon.text import plain

# nvml.h, nvmlReturn_t
_DRIVER_NOT_LOADED = 9
_VERSION_MISMATCH = 18


def explain(error: DriverError) -> Problem:
    """An error of the whole library."""
    if error.code == NO_PACKAGE:
        return Problem("no GPU figures: nvidia-ml-py is not installed", install_command("nvidia-ml-py"))
    if error.code == LIBRARY_NOT_FOUND:
        message = "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"
        return Problem(message, _container_hint(), expected=True)
    if error.code == _DRIVER_NOT_LOADED:
        return Problem("the NVIDIA driver is not loaded", _container_hint() or "sudo modprobe nvidia")
    if error.code == NO_PERMISSION:
        return Problem("no permission to query the NVIDIA driver", "Check who may read and write /dev/nvidia*")
    if error.code == _VERSION_MISMATCH:
        return Problem(
            "no GPU figures: the NVIDIA driver and its library have different versions",
            "The driver was updated while it was in use: restart the machine (or the container)",
        )
    return Problem(f"no GPU figures: NVML says {_words(error)}", "nvidia-smi shows more; tuimon will try again soon")


def no_devices() -> Problem:
    """NVML works and counts no GPU."""
    return Problem("the NVIDIA driver shows no GPU", _container_hint(), expected=True)


def hangs() -> Problem:
    """A call into the driver does not come back."""
    hint = "The figures are old until it does; dmesg shows whether a GPU is in trouble"
    return Problem("the NVIDIA driver does not answer", hint, passing=True)


def explain_device(index: int, name: str, error: DriverError, xids: Sequence[int] = ()) -> Problem:
    """An error of one GPU, with the Xid errors that came just before."""
    what = f"GPU {index} ({plain(name)})" if name else f"GPU {index}"
    if error.code == GPU_IS_LOST:
        hint = "dmesg shows the Xid error; a lost GPU usually needs a restart of the machine"
        latest = f" (Xid {', '.join(map(str, xids))})" if xids else ""
        return Problem(f"{what} is lost: it does not answer any more{latest}", hint)
    if error.code == RESET_REQUIRED:
        hint = "When nothing uses it: sudo nvidia-smi --gpu-reset"
        return Problem(f"{what} needs a reset before it can be used", hint)
    return Problem(f"{what} gives no figures: NVML says {_words(error)}", "tuimon will try again soon")


def _words(error: DriverError) -> str:
    return f"{plain(str(error))} ({error.code})"


def _container_hint() -> str | None:
    is_hidden = in_container() and has_nvidia_gpu()
    return "Start the container with its GPUs: docker run --gpus all" if is_hidden else None
