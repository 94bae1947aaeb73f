"""Each of two ranks has a context on GPU 0 before it takes its own; fixed: on its own alone."""
# category: API misuse
# expects: idle_gpu/context
# gpus: 2
# seconds: 45
# launch: torchrun 2

import os

import gpus
import torch.distributed as dist
from plain import train
from until import options


def main():
    args = options()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    gpus.reported(rank)
    if rank == 0:
        gpus.shown(gpu0=("busy", pids[:1] if args.fixed else pids), gpu1=("busy", pids[1:]))
    train(args.seconds)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
