"""A compiled model."""
# healthy

from itertools import repeat

import torch
from laps import fit, options
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def main():
    args = options()
    model = nn.Sequential(*(Residual(256) for _ in range(4)), nn.Linear(256, 10))
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(128, 256), torch.randint(10, (128,))
    fit(args, optimizer, repeat((x, y)), lambda x, y: nn.functional.cross_entropy(compiled(x), y))


main()
