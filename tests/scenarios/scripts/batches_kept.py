"""Batches with a high loss are put aside to be looked at, and nobody ever does."""
# expects: memory_pressure/growing

import torch
import torch.nn.functional as F
from laps import endless, options, small_model, steps
from torch.utils.data import DataLoader, TensorDataset


def main():
    args = options()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(4000, 256)), batch_size=64, shuffle=True)
    hard, worst = [], 0.0
    for _, (x,) in zip(steps(args.seconds), endless(loader), strict=False):
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not args.fixed:
            hard.append((loss.item(), x))  # <- cause
        elif loss.item() > worst:
            worst = loss.item()


if __name__ == "__main__":
    main()
