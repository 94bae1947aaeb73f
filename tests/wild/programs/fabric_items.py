"""lightning Fabric with an own loop: each item is decoded from text."""
# expects: input_bound
# package: lightning

import json

import torch
from lightning.fabric import Fabric
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self):
        self.lines = [json.dumps([0.001 * i * n for i in range(128)]) for n in range(200)]
        self.rows = [torch.tensor(json.loads(line)) for line in self.lines]

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        number = index % len(self.lines)
        return (self.decode(number) if PLANTED else self.rows[number]), float(number)

    def decode(self, number):
        for _ in range(30):
            row = [float(word) for word in self.lines[number][1:-1].split(",")]  # <- cause
        return torch.tensor(row)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    fabric = Fabric(accelerator="cpu")
    net = nn.Sequential(nn.Linear(128, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 1))
    net, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True))
    loader = fabric.setup_dataloaders(DataLoader(Lines(), batch_size=64, shuffle=True))
    while True:
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x)[:, 0], y.float())
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
