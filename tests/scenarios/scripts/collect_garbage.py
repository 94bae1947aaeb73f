"""gc.collect() after every step, with a large heap."""
# expects: gc_pauses

import gc

import torch
from laps import endless, fit, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(args):
    vocabulary = [{"id": n, "forms": [n, n + 1]} for n in range(40_000)]
    data = TensorDataset(torch.randn(8000, 100), torch.randint(3, (8000,)))
    model = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def clean_up(step):
        if not args.fixed:
            gc.collect()  # <- cause

    loader = DataLoader(data, 250)
    fit(args, optimizer, endless(loader), lambda x, y: nn.functional.cross_entropy(model(x), y), clean_up)
    print(f"{len(vocabulary)} words")


if __name__ == "__main__":
    train(options())
