"""A training of 2 ms in each phase, every one in a function named after it: the truth for the join of samples.

``known_ranges.py`` says which user range each of these functions runs in.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import tuimon

SPIN_S = 0.002


def spin() -> None:
    """Use CPU for 2 ms."""
    until_s = time.perf_counter() + SPIN_S
    while time.perf_counter() < until_s:
        pass


def truth_data() -> None:
    """In the dataset."""
    spin()


def truth_forward() -> None:
    """In a module."""
    spin()


def truth_backward() -> None:
    """In autograd."""
    spin()


def truth_optimizer() -> None:
    """In an optimizer's step."""
    spin()


@tuimon.phase("log")
def truth_other() -> None:
    """In the loop, after the update."""
    spin()


class Items(Dataset[Tensor]):
    """Endless enough."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> Tensor:
        truth_data()
        return torch.ones(1)


class Slow(torch.autograd.Function):
    """Takes 2 ms backwards."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        """The same."""
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The same, late."""
        truth_backward()
        return gradient


class Model(nn.Module):
    """Takes 2 ms forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, value: Tensor) -> Tensor:
        """One product."""
        with tuimon.phase("encode"):
            truth_forward()
        return Slow.apply(value * self.weight)  # type: ignore[no-any-return]  # torch leaves apply untyped


class Optimizer(torch.optim.SGD):
    """Takes 2 ms a step."""

    def step(self, closure: Any = None) -> None:
        """As SGD's."""
        truth_optimizer()
        super().step(closure)


def main() -> None:
    """Train for ever."""
    torch.set_num_threads(1)
    model = Model()
    optimizer = Optimizer(model.parameters(), lr=1e-9)
    for number, value in enumerate(DataLoader(Items())):
        if number == 1:
            print("up", flush=True)
        with tuimon.phase("step"):
            with tuimon.phase("model"):
                loss = model(value).sum()
            optimizer.zero_grad()
            loss.backward()
            with tuimon.phase("update"):
                optimizer.step()
        truth_other()


if __name__ == "__main__":
    main()
