"""Anomaly detection was turned on to find a NaN, and has stayed on."""
# expects: slow_setting/anomaly

from itertools import repeat

import torch
from laps import fit, options
from torch import nn


def main():
    args = options()
    torch.autograd.set_detect_anomaly(not args.fixed)
    model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.ReLU())])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    fit(args, optimizer, repeat(()), lambda: model(torch.randn(64, 64)).square().mean())


if __name__ == "__main__":
    main()
