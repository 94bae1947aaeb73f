"""Two ranks over gloo; large layers on small batches: exchanging the gradients takes longer than computing them."""
# expects: comm_bound
# launch: torchrun 2

import contextlib
import os

import torch
import torch.distributed as dist
from laps import Laps, options
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    args = options()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers = nn.Sequential(nn.Linear(512, 3000), nn.ReLU(), nn.Linear(3000, 3000), nn.ReLU(), nn.Linear(3000, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = Laps(args.seconds)
    going = torch.ones(1)
    step = 0
    while going.item():
        x, y = torch.randn(8, 512), torch.randint(10, (8,))
        step += 1
        exchange = not args.fixed or step % 16 == 0
        with contextlib.nullcontext() if exchange else model.no_sync():
            loss = nn.functional.cross_entropy(model(x), y)
            watch.lap("forward")
            loss.backward()
        watch.lap("backward")
        if exchange:
            optimizer.step()
            optimizer.zero_grad()
        watch.lap("optimizer")
        going.fill_(float(watch.step()))
        if step % 16 == 0 or not args.fixed:
            dist.broadcast(going, 0)
        watch.lap("other")
    if rank == 0:
        watch.report()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__" and os.environ.get("RANK"):
    main()
