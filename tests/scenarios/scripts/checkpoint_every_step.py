"""A checkpoint after every step."""
# expects: side_work/checkpoint

import os
import tempfile

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def save(model, optimizer, path):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path)  # <- cause


def main():
    args = options()
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(20_000, 256), torch.randn(20_000, 1))
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    watch = Laps(args.seconds)
    going, steps = True, 0
    while going:
        for x, y in DataLoader(data, batch_size=128, shuffle=True):
            watch.lap("data")
            loss = nn.functional.mse_loss(model(x), y)
            watch.lap("forward")
            optimizer.zero_grad()
            loss.backward()
            watch.lap("backward")
            optimizer.step()
            watch.lap("optimizer")
            steps += 1
            if not args.fixed or steps % 500 == 0:
                save(model, optimizer, path)
            watch.lap("other")
            going = watch.step()
            if not going:
                break
    watch.tell()


if __name__ == "__main__":
    main()
