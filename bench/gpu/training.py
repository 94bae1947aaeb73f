"""Trainings on the GPU whose phases are known: for ``against_profiler`` and ``syncs``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import record_function

from tuimon.agent import install, runtime
from tuimon.agent.steps import TokenBucket

#: Names of the ranges that the profiler sees, one per phase.
TRUTH = "truth:"


class Shape(NamedTuple):
    """Width and depth of an MLP, and its batch."""

    width: int
    layers: int
    batch: int


#: name -> shape: one keeps the GPU busy far behind the CPU, the other waits for launches.
SHAPES = {"GPU-bound": Shape(4096, 6, 4096), "launch-bound": Shape(128, 12, 64)}


class Training:
    """Steps of an MLP whose batches lie on the GPU, with a range of the profiler's around each phase."""

    def __init__(self, shape: Shape) -> None:
        torch.manual_seed(1)
        layers = [nn.Sequential(nn.Linear(shape.width, shape.width), nn.ReLU()) for _ in range(shape.layers)]
        self.model = nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)
        self.inputs = torch.randn(shape.batch, shape.width, device="cuda")
        self.target = torch.randn(shape.batch, shape.width, device="cuda")

    def step(self) -> None:
        """One step, without a synchronisation."""
        with record_function(f"{TRUTH}forward"):
            loss = F.mse_loss(self.model(self.inputs), self.target)
        with record_function(f"{TRUTH}backward"):
            loss.backward()
        with record_function(f"{TRUTH}optimizer"):
            self.optimizer.step()
        self.optimizer.zero_grad()


@contextlib.contextmanager
def hooked() -> Iterator[None]:
    """torch hooked as ``tuimon run`` does it. Raises RuntimeError when there is no room for a ring."""
    install.install(torch, _now)
    try:
        if not runtime.on:
            raise RuntimeError("no ring: is there room in /dev/shm?")
        yield
    finally:
        install.uninstall()


@contextlib.contextmanager
def every_step_timed() -> Iterator[None]:
    """Steps are timed whatever it costs: what is compared is what was measured, not how often."""
    paid = TokenBucket.is_paid
    TokenBucket.is_paid = property(lambda self: True)  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        TokenBucket.is_paid = paid  # type: ignore[method-assign]


def _now(name: str, then: Callable[[ModuleType], None]) -> None:
    module = sys.modules.get(name)
    if module is not None:
        then(module)
