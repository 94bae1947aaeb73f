"""GPUs that are not there: what the fake NVML and torch.cuda show of them beside a program that trains on the CPU."""

import os
from pathlib import Path
from types import SimpleNamespace

import torch

_BUSY, _IDLE = 85, 0


def shown(**by_gpu):
    """Write what NVML shows: ``gpu0=("busy", [pid]), gpu1=("idle", [])``, and who holds memory there."""
    path = os.environ.get("FAKE_NVML_SCENARIO")
    if path is None:
        return
    lines = Path(path).read_text().splitlines()
    for gpu, (how, pids) in by_gpu.items():
        held = {"util": _BUSY if how == "busy" else _IDLE, "memory_used_mib": 9000 * len(pids)}
        held["pids"] = " ".join(f"{pid}:9000" for pid in pids)
        lines += [f"{gpu.removeprefix('gpu')}.{key} {value}" for key, value in held.items()]
    fresh = Path(f"{path}.{os.getpid()}")
    fresh.write_text("\n".join(lines) + "\n")
    fresh.rename(path)


def reported(*indices):
    """Let torch.cuda say that this process computes on the first of these, and holds memory of the others."""
    cuda = torch.cuda
    cuda.is_initialized, cuda.current_device, cuda.device_count = lambda: True, lambda: indices[0], lambda: 8
    cuda.memory_reserved = lambda index: int(index in indices)
    cuda.get_device_properties = lambda index: SimpleNamespace(uuid=f"GPU-0000000{index}-fake")
