"""Four ranks over gloo; rank 2 reads its data from a slower disk."""
# expects: straggler_rank
# launch: torchrun 4

import os
import time

import torch
import torch.distributed as dist
from laps import fit, options
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, read_s):
        self.read_s = read_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(self.read_s)  # <- cause
        return torch.randn(64)


def main():
    args = options()
    dist.init_process_group("gloo")
    slow = dist.get_rank() == 2 and not args.fixed
    loader = DataLoader(Shards(0.006 if slow else 0.002), batch_size=8, collate_fn=lambda rows: (torch.stack(rows),))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(args, optimizer, loader, lambda x: model(x).square().mean())


if __name__ == "__main__" and os.environ.get("RANK"):
    main()
