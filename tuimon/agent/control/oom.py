"""At an out-of-memory error of CUDA: what is allocated, by line, where the user has requested it (``--memory``)."""

import sys
from typing import Any

from ..outside import attempt
from .memory import CudaRecording, write


def watch() -> None:
    """Have the allocator keep its history from now on, and leave a file at each error; without CUDA, do nothing."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if CudaRecording.is_watched or cuda is None or not cuda.is_initialized():
        return
    recording = CudaRecording(torch)
    if recording.refusal(1) is not None:
        return

    def note(device: int, wanted: int) -> None:
        recording.device = "cuda:%d" % device
        content = recording.blocks_now([]).content()
        content.update(wanted_bytes=wanted, pause_ns=0)
        write("oom", recording.device, 0, content)

    def tuimon_out_of_memory(device: int, wanted: int, device_total: int, device_free: int) -> None:
        attempt(note, device, wanted)  # the program's own error is to come through

    torch._C._cuda_attach_out_of_memory_observer(tuimon_out_of_memory)
    recording.begin()
    CudaRecording.is_watched = True
