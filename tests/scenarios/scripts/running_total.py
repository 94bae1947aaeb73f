"""The losses of an epoch are added up with their graphs."""
# expects: memory_pressure/growing

import torch
from laps import endless, options, small_model, steps
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    args = options()
    model, criterion = small_model(64, 24), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(400_000, 64)), batch_size=8)
    running_loss = 0.0
    for _, (x,) in zip(steps(args.seconds), endless(loader), strict=False):
        loss = criterion(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.fixed:
            running_loss += loss.item()
        else:
            running_loss += loss  # <- cause


if __name__ == "__main__":
    main()
