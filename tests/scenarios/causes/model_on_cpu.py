"""The GPU that the job was given runs no kernel, as nothing is moved to it; fixed: NVML shows it at work."""
# category: API misuse
# expects: idle_gpu/model_on_cpu or compute_bound_cpu
# says: to GPU 0
# gpus: 1 given
# seconds: 45

import os

import gpus
from plain import train
from until import options


def main():
    args = options()
    if args.fixed:
        gpus.reported(0)
        gpus.shown(gpu0=("busy", [os.getpid()]))
    else:
        gpus.shown(gpu0=("idle", []))
    train(args.seconds)


if __name__ == "__main__":
    main()
