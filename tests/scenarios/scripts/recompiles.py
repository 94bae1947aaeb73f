"""A compiled model that is given the length of each batch as a Python number, and compiled anew for each."""
# expects: recompiles

import random

import torch
from laps import Laps, options
from torch import nn


class Masked(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, 10)

    def forward(self, x, length):
        return self.head((self.layers(x) * (1.0 + length)).tanh())


def main():
    args = options()
    for limit in ("cache_size_limit", "recompile_limit", "accumulated_cache_size_limit", "accumulated_recompile_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 1_000_000)
    model = Masked(128)
    compiled = torch.compile(model, backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 128), torch.randint(10, (64,))
    watch, lengths = Laps(args.seconds), random.Random(0)
    while True:
        length = lengths.randrange(1_000_000) if not args.fixed else 7
        loss = nn.functional.cross_entropy(compiled(x, length), y)  # <- cause
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.tell()


main()
