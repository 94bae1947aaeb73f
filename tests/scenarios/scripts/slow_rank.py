"""Two ranks over gloo; rank 1 has twice the work."""
# expects: straggler_rank
# launch: torchrun 2

import os
from itertools import repeat

import torch
import torch.distributed as dist
from laps import fit, options
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))

    def forward(self, x, rounds):
        for _ in range(rounds):
            x = torch.tanh(self.layers(x))  # <- cause
        return x.mean()


def main():
    args = options()
    dist.init_process_group("gloo")
    rounds = 12 if dist.get_rank() == 1 and not args.fixed else 4
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(args, optimizer, repeat(()), lambda: model(torch.randn(128, 256), rounds))


if __name__ == "__main__" and os.environ.get("RANK"):
    main()
