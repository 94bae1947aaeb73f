"""What the hooks add to a step that they only count, and to one that they time, in caches that a training has used.

Real steps without hooks take turns with the hooks' own calls, around functions that do nothing. Whole steps with hooks
and without differ by less than a busy machine's noise; this takes a few microseconds, of which the least are known to
0.1 us. ``toggled.py`` measures whole steps on a quiet machine.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from steps import LOOPS, Loop

from tuimon.agent import install, runtime
from tuimon.agent.importlib_bootstrap import hooks
from tuimon.agent.loading import loader_facts
from tuimon.agent.pace import pace

#: Steps of each kind that are measured, and which of them is printed: the least were not interrupted.
STEPS = 2000
QUANTILE = 0.1
#: Steps before that: the hooks publish facts, and learn what makes a step.
SETTLE_STEPS = 2000
_optimizers: Any = sys.modules["torch.optim.optimizer"]


class Fetches:
    """Stands in for torch's iterator over a loader."""

    def __init__(self) -> None:
        self._num_workers = 0
        loader_facts.numbers[id(self)] = 1 << 16 | 1

    def __next__(self) -> None:
        return None


class WorkerFetches(Fetches):
    """... with workers."""

    def __init__(self) -> None:
        super().__init__()

    def _reset(self) -> None:
        pass


class Step:
    """The boundaries of a step, with nothing between them."""

    def __init__(self, *, fetches: bool) -> None:
        self.loader = types.ModuleType("loader")
        self.loader._BaseDataLoaderIter = type("Fetches", (Fetches,), {"__next__": Fetches.__next__})  # type: ignore[attr-defined]
        self.loader._SingleProcessDataLoaderIter = Fetches  # type: ignore[attr-defined]
        self.loader._MultiProcessingDataLoaderIter = WorkerFetches  # type: ignore[attr-defined]
        self.engine = types.ModuleType("engine")
        self.engine._engine_run_backward = lambda t_outputs, *args, **kwargs: None  # type: ignore[attr-defined]
        self.iterator = self.loader._BaseDataLoaderIter() if fetches else None

    def run(self) -> None:
        """One step; torch calls the hooks in the same way."""
        if self.iterator is not None:
            next(self.iterator)
        self.engine._engine_run_backward((1,), (1,), False, False, (), allow_unreachable=True, accumulate_grad=True)
        for hooked in (_optimizers._global_optimizer_pre_hooks, _optimizers._global_optimizer_post_hooks):
            for hook in hooked.values():
                hook(self, (), {})

    def hook(self) -> None:
        """Hook it as ``tuimon run`` hooks torch."""
        install.install(torch, lambda name, then: None)
        hooks.hook_fetch(self.loader)
        hooks.hook_backward(self.engine)
        hooks.hook_optimizer(_optimizers)
        runtime.facts_due = False
        for _ in range(SETTLE_STEPS):
            self.run()


def training() -> Callable[[], None]:
    """A function that makes a step of 0.3 ms through no hooked function."""
    loop, batches = Loop(*LOOPS["0.3ms"]), iter(())
    step = type(loop.optimizer).step.__wrapped__  # type: ignore[attr-defined]
    run_backward = torch.autograd.Variable._execution_engine.run_backward

    def train() -> None:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = iter(loop.feed)
            batch = next(batches)
        loop.optimizer.zero_grad()
        loss = F.cross_entropy(loop.head(loop.model(batch[0])), batch[1])
        run_backward((loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True)
        step(loop.optimizer)

    return train


def cost_us(step: Step, train: Callable[[], None], *, counted: bool) -> float:
    """What the boundaries of a step take after a real step, if they are counted or not; without hooks they are not."""
    times = []
    while len(times) < STEPS:
        train()
        before, began_ns = bool(pace.counting_thread), time.perf_counter_ns()
        step.run()
        spent_ns = time.perf_counter_ns() - began_ns
        if before == bool(pace.counting_thread) == counted:
            times.append(spent_ns)
    return sorted(times)[int(QUANTILE * STEPS)] / 1000


def calls(step: Step) -> int:
    """How many functions of Python a step calls."""
    called = []
    sys.setprofile(lambda frame, event, _: called.append(frame) if event == "call" else None)
    try:
        step.run()
    finally:
        sys.setprofile(None)
    return len(called)


def main() -> None:
    """Print a line for a loop without a DataLoader and one for a loop with it."""
    torch.set_num_threads(1)
    install.uninstall()  # importing tuimon hooks a torch that is there
    train = training()
    for name, fetches in (("without a DataLoader", False), ("with one", True)):
        step = Step(fetches=fetches)
        plain_us, plain_calls = cost_us(step, train, counted=False), calls(step)
        step.hook()
        counted_us = cost_us(step, train, counted=True)
        while not pace.counting_thread:
            step.run()
        more = calls(step) - plain_calls
        timed_us = cost_us(step, train, counted=False)
        install.uninstall()
        print(
            f"{name}: a counted step {counted_us - plain_us:.2f} us ({more} Python calls), "
            f"a timed one {timed_us - plain_us:.2f} us",
            flush=True,
        )


if __name__ == "__main__":
    main()
