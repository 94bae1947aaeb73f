"""gc.collect() after every step, with a large heap."""
# expects: gc_pauses

import gc

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(args):
    vocabulary = [{"id": n, "forms": [n, n + 1]} for n in range(40_000)]
    data = TensorDataset(torch.randn(8000, 100), torch.randint(3, (8000,)))
    model = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watch = Laps(args.seconds)
    for epoch in range(10_000):
        for x, y in DataLoader(data, 250):
            watch.lap("data")
            loss = nn.functional.cross_entropy(model(x), y)
            watch.lap("forward")
            optimizer.zero_grad()
            loss.backward()
            watch.lap("backward")
            optimizer.step()
            watch.lap("optimizer")
            if not args.fixed:
                gc.collect()  # <- cause
            watch.lap("other")
            if not watch.step():
                watch.tell()
                print(f"{len(vocabulary)} words, {epoch} epochs")
                return


if __name__ == "__main__":
    train(options())
