"""The energy of a sound fades until its values are too small for a CPU's fast path: they are denormal numbers."""
# expects: slow_setting/denormals
# missed: denormal numbers leave no sign in samples, nor in counters that tuimon reads

from itertools import repeat

import torch
from laps import fit, options
from torch import nn


class Loudness(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.full((400,), 0.7))

    def forward(self, energy):
        loudness = 0.0
        for _ in range(20):
            energy = energy * self.decay
            loudness = loudness + energy.sqrt()  # <- cause
        return loudness.mean()


def main():
    args = options()
    torch.set_flush_denormal(args.fixed)
    model = Loudness()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    sound = torch.rand(128, 400) * 1e-37
    fit(args, optimizer, repeat((sound,)), model)


if __name__ == "__main__":
    main()
