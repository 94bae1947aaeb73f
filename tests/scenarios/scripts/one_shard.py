"""A stream in one shard: of two workers one makes all batches, and the other has nothing to do."""
# expects: input_bound/idle_workers

import itertools
import time

import torch
import torch.nn.functional as F
from laps import fit, options
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, number):
        self.shards = list(range(number))

    def __iter__(self):
        worker = get_worker_info()
        for shard in self.shards[worker.id :: worker.num_workers]:
            for row in itertools.count():
                yield fetch(shard, row), row % 10


def fetch(shard, row):
    time.sleep(0.002)  # <- cause
    return torch.full((64,), float(row % 7 + shard))


def main():
    args = options()
    loader = DataLoader(Shards(2 if args.fixed else 1), batch_size=8, num_workers=2)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(args, optimizer, loader, lambda x, y: F.cross_entropy(model(x), y))


if __name__ == "__main__":
    main()
