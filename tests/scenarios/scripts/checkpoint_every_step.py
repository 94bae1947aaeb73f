"""A checkpoint after every step."""
# expects: side_work/checkpoint

import os
import tempfile

import torch
from laps import endless, fit, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def save(model, optimizer, path):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path)  # <- cause


def main():
    args = options()
    data = TensorDataset(torch.randn(20_000, 256), torch.randn(20_000, 1))
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    loader = DataLoader(data, batch_size=128, shuffle=True)

    def keep(step):
        if not args.fixed or step % 500 == 0:
            save(model, optimizer, path)

    fit(args, optimizer, endless(loader), lambda x, y: nn.functional.mse_loss(model(x), y), keep)


if __name__ == "__main__":
    main()
