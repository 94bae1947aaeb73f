"""A head is trained on features of an encoder whose gradients are computed, and that no optimizer holds."""
# expects: compute_bound_cpu/unused_gradients

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    args = options()
    encoder = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(384, 384), nn.ReLU())])
    encoder.requires_grad_(not args.fixed)
    head = nn.Linear(384, 4)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-2)
    data = DataLoader(TensorDataset(torch.randn(4000, 384), torch.randint(4, (4000,))), batch_size=200)
    watch, going = Laps(args.seconds), True
    while going:
        for x, y in data:
            watch.lap("data")
            loss = nn.functional.cross_entropy(head(encoder(x)), y)  # <- cause
            watch.lap("forward")
            optimizer.zero_grad()
            loss.backward()
            watch.lap("backward")
            optimizer.step()
            watch.lap("optimizer")
            going = watch.step()
            if not going:
                break
    watch.tell()


main()
