"""Each item is made by a pool of threads, which a forked worker would wait for in vain."""
# expects: input_bound/no_workers

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from laps import fit, options
from torch import nn
from torch.utils.data import DataLoader, Dataset

POOL = ThreadPoolExecutor(1)


class Readings(Dataset):
    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return POOL.submit(self.make, index).result(), index % 10


def smooth(index):
    level = 0.0
    levels = []
    for i in range(2_000):
        level += 0.1 * ((index * i) % 17 - level)  # <- cause
        levels.append(level)
    return torch.tensor(levels)  # <- cause


def smooth_at_once(index):
    readings = torch.arange(2_000.0) * index % 17
    return readings.view(-1, 10).mean(1).repeat_interleave(10)


def main():
    args = options()
    loader = DataLoader(Readings(smooth_at_once if args.fixed else smooth), batch_size=32)
    model = nn.Sequential(nn.Linear(2_000, 1_000), nn.ReLU(), nn.Linear(1_000, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(args, optimizer, loader, lambda x, y: F.cross_entropy(model(x), y))


if __name__ == "__main__":
    main()
