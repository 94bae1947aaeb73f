"""torch multiplies matrices of a simulation for a minute and more, and no model is trained; fixed: one is."""
# category: no deep learning
# expects: unseen
# seconds: 75

import time

import torch
from laps import options, train


def simulate(seconds):
    end, state = time.time() + seconds, torch.rand(300, 300)
    while time.time() < end:
        state = torch.tanh(state @ state / 300)


def main():
    args = options()
    if args.fixed:
        train(args.seconds)
    else:
        simulate(args.seconds)


if __name__ == "__main__":
    main()
