"""What the programs of the pairs share: a model that takes its time on any machine, and how long they run.

The time of the model is spent asleep, half of it in backward, so that trainings on a busy machine are alike.
"""

from __future__ import annotations

import os
import sys
import time

import torch
from torch import nn

_END = time.monotonic() + float(os.environ.get("PAIR_SECONDS", "8"))


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(ctx.seconds)
        return gradient, None


class Computing(nn.Module):
    """Takes ``ms`` for whatever it is given, forward and backward together."""

    def __init__(self, width: int, ms: float) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 8)
        self.ms = ms

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Sleep.apply(self.layer(x.float()), self.ms / 2e3)


def is_over() -> bool:
    """Whether the program has run for as long as it should."""
    return time.monotonic() > _END


class Training:
    """A model and its optimizer; ``step`` trains on one batch, and ends the program when the time is over."""

    def __init__(self, width: int = 64, ms: float = 8.0) -> None:
        torch.set_num_threads(1)
        self.model: nn.Module = Computing(width, ms)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """The loss."""
        if is_over():
            sys.exit()
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()
