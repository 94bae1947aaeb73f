"""A job was given four GPUs by CUDA_VISIBLE_DEVICES and computes on the first; fixed: on all."""
# category: more GPUs than used
# expects: idle_gpu/unused
# gpus: 4 given
# seconds: 45

import os

import gpus
from plain import train
from until import options


def main():
    args = options()
    own, rest = [os.getpid()], ("idle", [])
    used = range(4) if args.fixed else (0,)
    gpus.reported(*used)
    gpus.shown(**{f"gpu{index}": ("busy", own) if index in used else rest for index in range(4)})
    train(args.seconds)


if __name__ == "__main__":
    main()
