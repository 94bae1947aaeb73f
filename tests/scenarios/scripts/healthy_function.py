"""A convolutional net on preloaded pictures, in one function."""
# healthy

import torch
import torch.nn.functional as F
from laps import Laps, options
from torch import nn


def main():
    args = options()
    torch.set_num_threads(2)
    pictures, labels = torch.randn(2000, 1, 28, 28), torch.randint(10, (2000,))
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18432, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = Laps(args.seconds)
    going = True
    while going:
        for chosen in torch.randperm(2000).split(50):
            x, y = pictures[chosen], labels[chosen]
            watch.lap("data")
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            watch.lap("forward")
            loss.backward()
            watch.lap("backward")
            optimizer.step()
            watch.lap("optimizer")
            going = watch.step()
            if not going:
                break
    watch.tell()


main()
