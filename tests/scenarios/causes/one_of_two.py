"""A machine has two GPUs alike, and the training uses one; fixed: somebody else uses the other."""
# category: more GPUs than used
# expects: idle_gpu/unused
# gpus: 2
# seconds: 45

import os

import gpus
from plain import train
from until import options


def main():
    args = options()
    gpus.reported(0)
    gpus.shown(gpu0=("busy", [os.getpid()]), gpu1=("busy", [1]) if args.fixed else ("idle", []))
    train(args.seconds)


if __name__ == "__main__":
    main()
