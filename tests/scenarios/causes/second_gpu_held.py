"""Weights lie on two GPUs, and only the first one computes; fixed: both do."""
# category: API misuse
# expects: idle_gpu/held
# gpus: 2
# seconds: 45

import os

import gpus
from plain import train
from until import options


def main():
    args = options()
    own = [os.getpid()]
    gpus.reported(0, 1)
    gpus.shown(gpu0=("busy", own), gpu1=("busy" if args.fixed else "idle", own))
    train(args.seconds)


if __name__ == "__main__":
    main()
