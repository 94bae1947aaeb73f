"""One sample in 192 is far slower than the others, and all workers' later batches wait for it in order."""
# expects: input_bound/slow_item

import time

import torch
import torch.nn.functional as F
from laps import fit, options
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __len__(self):
        return 192_000

    def __getitem__(self, index):
        return read(index), index % 10


def read(index):
    time.sleep(0.6 if index % 192 == 100 else 0.0004)  # <- cause
    return torch.full((256,), float(index % 7))


def main():
    args = options()
    loader = DataLoader(Scans(), batch_size=8, num_workers=4, in_order=not args.fixed)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(args, optimizer, loader, lambda x, y: F.cross_entropy(model(x), y))


if __name__ == "__main__":
    main()
