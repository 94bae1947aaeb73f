"""A compiled model."""
# healthy

import torch
from laps import Laps, options
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def main():
    args = options()
    torch.set_num_threads(1)
    model = nn.Sequential(*(Residual(256) for _ in range(4)), nn.Linear(256, 10))
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(128, 256), torch.randint(10, (128,))
    watch = Laps(args.seconds)
    while True:
        loss = nn.functional.cross_entropy(compiled(x), y)
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
