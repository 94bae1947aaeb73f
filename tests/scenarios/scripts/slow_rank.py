"""Two ranks over gloo; rank 1 has twice the work."""
# expects: straggler_rank
# launch: torchrun 2

import os

import torch
import torch.distributed as dist
from laps import Laps, options
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
    rank = dist.get_rank()
    rounds = 12 if rank == 1 and not args.fixed else 4
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = Laps(args.seconds)
    going = torch.ones(1)
    while going.item():
        x = torch.randn(128, 256)
        loss = model(x, rounds)
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        going.fill_(float(watch.step()))
        dist.broadcast(going, 0)
        watch.lap("other")
    if rank == 0:
        watch.tell()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__" and os.environ.get("RANK"):
    main()
