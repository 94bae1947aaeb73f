"""Two ranks are started on a machine with four GPUs; fixed: the two others belong to another job."""
# category: more GPUs than used
# expects: idle_gpu/unused
# gpus: 4
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
        rest = ("busy", [1]) if args.fixed else ("idle", [])
        gpus.shown(gpu0=("busy", pids[:1]), gpu1=("busy", pids[1:]), gpu2=rest, gpu3=rest)
    train(args.seconds)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
