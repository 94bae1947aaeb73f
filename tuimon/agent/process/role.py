"""True if this process was started for something else than training."""

import sys

from ..outside import raised_by_us

#: In the command lines of processes that import torch and rarely train.
_AUXILIARY_SIGNS = (b"--multiprocessing-fork", b"multiprocessing.forkserver", b"_inductor/compile_worker")


def is_auxiliary() -> bool:
    """True if this is a child of multiprocessing or a compiler process: it gets a ring only once it trains."""
    if "--multiprocessing-fork" in sys.argv:
        return True
    try:
        with open("/proc/self/cmdline", "rb") as cmdline:
            line = cmdline.read(65536)
    except raised_by_us(OSError):
        return False
    return any(sign in line for sign in _AUXILIARY_SIGNS)
