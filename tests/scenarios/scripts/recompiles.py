"""A compiled model that is given the length of each batch as a Python number, and compiled anew for each."""
# expects: recompiles

import random
from itertools import repeat

import torch
from laps import fit, options
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
    lengths = random.Random(0)

    def loss_of(x, y):
        length = lengths.randrange(1_000_000) if not args.fixed else 7
        return nn.functional.cross_entropy(compiled(x, length), y)  # <- cause

    fit(args, optimizer, repeat((x, y)), loss_of)


main()
