"""Anomaly detection was turned on to find a NaN, and has stayed on."""
# expects: slow_setting/anomaly

import torch
from laps import Laps, options
from torch import nn


def main():
    args = options()
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly(not args.fixed)
    model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.ReLU())])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = Laps(args.seconds)
    while True:
        loss = model(torch.randn(64, 64)).square().mean()
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.tell()


if __name__ == "__main__":
    main()
