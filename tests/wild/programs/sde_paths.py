"""torchsde without a DataLoader: the loop writes each sampled path to a log of JSON lines."""
# expects: side_work
# package: torchsde

import json
import tempfile

import torch
import torchsde
from planted import PLANTED, Clock
from torch import nn


class Motion(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, size):
        super().__init__()
        self.drift = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, size))
        self.spread = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, size), nn.Sigmoid())

    def f(self, t, y):
        return self.drift(y)

    def g(self, t, y):
        return self.spread(y)


class Journal:
    def __init__(self, file):
        self.file = file

    def add(self, step, loss, paths):
        row = {"step": step, "loss": loss.item()}
        if PLANTED:
            row["paths"] = self.rounded(paths)
        json.dump(row, self.file)  # <- cause
        self.file.write("\n")

    def rounded(self, paths):
        return [[[round(x, 5) for x in point] for point in path] for path in paths.tolist()]  # <- cause


def main():
    torch.set_num_threads(1)
    clock = Clock()
    times = torch.linspace(0, 1, 20)
    sde = Motion(4)
    optimizer = torch.optim.Adam(sde.parameters(), lr=1e-3)
    with tempfile.TemporaryFile("w") as file:
        journal = Journal(file)
        while True:
            paths = torchsde.sdeint(sde, torch.zeros(512, 4), times, method="euler", dt=0.05)
            loss = (paths[-1].mean(0) - 1).square().sum() + (paths[-1].var(0) - 0.5).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            journal.add(clock.steps, loss, paths)
            if not clock.step():
                break
    clock.tell()


if __name__ == "__main__":
    main()
