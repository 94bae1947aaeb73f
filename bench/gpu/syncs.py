"""Whether our hooks synchronise: torch's own count of synchronising calls, with hooks and without."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch

from bench.overhead import Say
from bench.table import Row, Spread


def measure(steps: int, say: Say) -> Iterator[Row]:
    """One row: synchronising calls more than without hooks, in so many steps that have one each of their own."""
    from bench.gpu.training import SHAPES, Training, hooked

    say(f"synchronising calls in {steps} steps, with hooks and without")
    training = Training(SHAPES["launch-bound"])
    for _ in range(10):
        training.step()
    plain = _count(training.step, training.inputs, steps)
    with hooked():
        with_hooks = _count(training.step, training.inputs, steps)
    torch.cuda.synchronize()
    if not plain:
        yield Row("synchronisations added", 0, None, why_absent="torch counted none of the script's own")
    else:
        yield Row(f"synchronisations added in {steps} steps ({plain} of its own)", 0, Spread.of([with_hooks - plain]))


def _count(step: Callable[[], None], inputs: torch.Tensor, steps: int) -> int:

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(steps):
                step()
                inputs[0, 0].item()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in said)
