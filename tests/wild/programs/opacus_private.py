"""opacus' private SGD: its Poisson batches are collated by a function that pads and sorts each row in Python."""
# expects: input_bound
# package: opacus

import warnings

import torch
from opacus import PrivacyEngine
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(4096, 64)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        if PLANTED:
            row = ranked(row)
        return row, index % 3


def ranked(row):
    values = row.tolist()
    for _ in range(8):
        order = sorted(range(len(values)), key=lambda n: (round(values[n], 2), -n))  # <- cause
        places = {n: place for place, n in enumerate(order)}  # <- cause
    return torch.tensor([places[n] / len(order) for n in range(len(values))])  # <- cause


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clock = Clock()
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    net, optimizer, loader = PrivacyEngine().make_private(
        module=net, optimizer=optimizer, data_loader=DataLoader(Rows(), batch_size=64), noise_multiplier=1.0,
        max_grad_norm=1.0,
    )  # fmt: skip
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
