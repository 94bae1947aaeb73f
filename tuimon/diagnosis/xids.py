"""NVIDIA's most frequent error numbers, with the meaning of each and the advice.

Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.finding import Severity

RESET = "stop all programs on this GPU and reset it (nvidia-smi --gpu-reset); if it fails again, have it replaced"
REPLACE = "take this GPU out of use, and have it replaced"
CONNECTION = "check the card's seat, cables, power and cooling (dmesg says more); have it tested if this happens again"
_KERNEL = (
    "find the kernel that fails: CUDA_LAUNCH_BLOCKING=1, or compute-sanitizer python ...; if the program runs well on"
    " other GPUs, have this one tested"
)
RESET_LATER = "save a checkpoint, and reset this GPU when nothing uses it (nvidia-smi --gpu-reset)"
_NVLINK = f"reset the GPUs at both ends (nvidia-smi nvlink -e shows the link); {CONNECTION}"
_UNKNOWN = "look up that number among NVIDIA's Xid errors, and see dmesg"


class Xid(NamedTuple):
    """The meaning of one of the driver's error numbers."""

    meaning: str
    remedy: str
    severity: Severity


_XIDS = {
    13: Xid("a kernel failed (out of bounds, illegal instruction)", _KERNEL, "warning"),
    31: Xid("a kernel accessed memory that it does not own", _KERNEL, "warning"),
    43: Xid("the GPU stopped a process's work", _KERNEL, "warning"),
    45: Xid("work was taken off the GPU: its process was ended", "change nothing if that was meant to end", "benign"),
    46: Xid("the GPU stopped working", RESET, "critical"),
    48: Xid("memory error that could not be corrected", RESET, "critical"),
    61: Xid("the GPU's microcontroller reported a fault", RESET, "critical"),
    62: Xid("the GPU's microcontroller halted", RESET, "critical"),
    63: Xid("faulty memory is taken out of use", RESET_LATER, "warning"),
    64: Xid("faulty memory could not be taken out of use", REPLACE, "critical"),
    69: Xid("a kernel called the GPU in a way that it does not support", _KERNEL, "warning"),
    74: Xid("NVLink error", _NVLINK, "critical"),
    79: Xid("the GPU has fallen off the bus", f"restart the machine; {CONNECTION}", "critical"),
    92: Xid("many corrected memory errors", REPLACE, "warning"),
    94: Xid("memory error, contained to one process", RESET_LATER, "warning"),
    95: Xid("memory error, not contained: reset the GPU", RESET, "critical"),
    109: Xid("the GPU could not change to another program's work in time", RESET, "critical"),
    119: Xid("the GPU's system processor does not answer", RESET, "critical"),
    120: Xid("the GPU's system processor failed", RESET, "critical"),
    121: Xid("corrected errors on the link to the CPU (C2C)", RESET_LATER, "info"),
    137: Xid("a kernel accessed memory of another GPU that it does not own", _KERNEL, "warning"),
    140: Xid("memory errors, after which faulty memory could not be taken out of use", RESET, "critical"),
    143: Xid("the GPU could not be initialized", RESET, "critical"),
    # of Blackwell: not all of them are fatal
    **dict.fromkeys(range(144, 151), Xid("NVLink error", _NVLINK, "warning")),
    154: Xid("another error calls for a reset or a restart", "do what dmesg says: it names the recovery", "warning"),
    158: Xid("the GPU did not answer in time", RESET, "critical"),
    167: Xid("the PCIe link did not answer in time", f"restart the machine; {CONNECTION}", "critical"),
    171: Xid("memory error that could not be corrected", RESET, "critical"),
    172: Xid("error in the GPU's caches that could not be corrected", RESET, "critical"),
}


def xid(number: int) -> Xid:
    return _XIDS.get(number) or Xid("an error that tuimon does not know", _UNKNOWN, "warning")
